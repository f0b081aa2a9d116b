//! Flags as records of an answer, in JSON text.
//!
//! A project's flags are named in every answer, and most of a record is the same in all of them. What depends on the flag
//! alone is JSON text from the compilation of the project on, a reason is written once for each answer, and the rest are
//! copies. With a serializer, writing was 40 % of the CPU time of a request (1,000 flags, 252 KB, 0.9 ms); now it is less
//! than a tenth of 0.25 ms.
//!
//! Must stay true: a record has the fields of the contract and no others; a flag's name is for its owners.

use std::ops::Range;

use pennon_engine::flag::evaluate::{CompiledFlag, Evaluation, FlagValue, Reason};
use serde::Serialize;
use serde_json::Value;

/// Bytes of a record besides its template, with a short reason and no payload.
const OUTCOME_BYTES: usize = 200;
/// Most reasons that are kept while an answer is written: those of almost all flags of a project.
const REASONS_KEPT: usize = 32;

/// What the records of a project's flags have in common in all answers.
#[derive(Debug, Default)]
pub struct RecordTemplates {
    text: String,
    /// By the index of the flag.
    flags: Vec<RecordTemplate>,
}

/// Parts of a record as ranges of the text.
#[derive(Debug, Clone)]
struct RecordTemplate {
    /// From its key to the field that says whether it is on.
    head: Range<usize>,
    /// The metadata up to the payload.
    metadata: Range<usize>,
}

impl RecordTemplates {
    /// The templates of all flags of an evaluator, by their indexes.
    pub fn new(flags: &[CompiledFlag]) -> Self {
        let mut templates = Self::default();
        for flag in flags {
            let key = Value::from(&*flag.key);
            let head = templates.push(&format!(r#"{key}:{{"key":{key},"enabled":"#));
            let (id, version) = (flag.id, flag.version);
            let metadata = templates.push(&format!(
                r#","metadata":{{"id":{id},"version":{version},"description":null,"payload":"#
            ));
            templates.flags.push(RecordTemplate { head, metadata });
        }
        templates
    }

    fn push(&mut self, part: &str) -> Range<usize> {
        let start = self.text.len();
        self.text.push_str(part);
        start..self.text.len()
    }

    /// About how many bytes the records of that many of the flags have.
    pub fn estimate_bytes(&self, flags: usize) -> usize {
        let of_templates = self.text.len() * flags.min(self.flags.len()) / self.flags.len().max(1);
        of_templates + flags * OUTCOME_BYTES
    }

    /// Appends the records of `flags`, with commas between them. The flags are of the evaluator that the templates were
    /// made from.
    pub fn write(
        &self,
        flags: &[(&CompiledFlag, Evaluation)],
        text: &mut Vec<u8>,
    ) -> Result<(), serde_json::Error> {
        let mut reasons = ReasonTexts::default();
        for (number, (flag, evaluation)) in flags.iter().enumerate() {
            let RecordTemplate { head, metadata } = &self.flags[flag.index];
            if number > 0 {
                text.push(b',');
            }
            text.extend_from_slice(self.text[head.clone()].as_bytes());
            match &evaluation.value {
                FlagValue::Off => text.extend_from_slice(br#"false,"variant":null,"#),
                FlagValue::On => text.extend_from_slice(br#"true,"variant":null,"#),
                FlagValue::Variant(key) => {
                    text.extend_from_slice(br#"true,"variant":"#);
                    serde_json::to_writer(&mut *text, &**key)?;
                    text.push(b',');
                }
            }
            if evaluation.is_failure() {
                text.extend_from_slice(br#""failed":true,"#);
            }
            reasons.write(evaluation, text)?;
            text.extend_from_slice(self.text[metadata.clone()].as_bytes());
            match flag.payload(&evaluation.value) {
                None => text.extend_from_slice(br#"null,"has_experiment":false}}"#),
                Some(payload) => {
                    serde_json::to_writer(&mut *text, payload)?;
                    text.extend_from_slice(br#","has_experiment":false}}"#);
                }
            }
        }
        Ok(())
    }
}

/// The reasons of an answer as texts.
#[derive(Default)]
struct ReasonTexts(Vec<(Reason, Option<usize>, Vec<u8>)>);

impl ReasonTexts {
    /// Appends the field of a record.
    fn write(&mut self, evaluation: &Evaluation, text: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        #[derive(Serialize)]
        struct Fields<'a> {
            code: &'a str,
            condition_index: Option<usize>,
            description: &'a str,
        }
        let Evaluation { reason, condition_index, .. } = *evaluation;
        let mut kept = self.0.iter();
        if let Some((.., kept)) = kept.find(|kept| (kept.0, kept.1) == (reason, condition_index)) {
            text.extend_from_slice(kept);
            return Ok(());
        }
        let start = text.len();
        let description = &*evaluation.description();
        text.extend_from_slice(br#""reason":"#);
        serde_json::to_writer(&mut *text, &Fields { code: reason.as_str(), condition_index, description })?;
        if self.0.len() < REASONS_KEPT {
            self.0.push((reason, condition_index, text[start..].to_vec()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
