//! The flag whose impact is calculated, as the request's handler writes it into the query.

/// What the calculation needs of the stored flag.
#[derive(Debug, Clone, PartialEq)]
pub struct FlagUnderTest {
    /// Its key.
    pub key: String,
    /// Whom it is evaluated for, and so who is counted: groups of the type with this index, or persons.
    pub group_type_index: Option<u8>,
    /// Its variants; `true` and `false` of a flag without variants.
    pub variants: Vec<FlagVariant>,
    /// Why the shares of the variants do not determine how many persons each should have; `None` if they do.
    pub no_split_reason: Option<String>,
}

/// A variant of the flag.
#[derive(Debug, Clone, PartialEq)]
pub struct FlagVariant {
    /// Its key.
    pub key: String,
    /// Its share of the persons, in percent; `None` if unknown.
    pub share: Option<f64>,
}

impl FlagUnderTest {
    /// The share of a variant, if the flag's shares determine how many persons each variant should have.
    pub fn expected_share(&self, variant: &str) -> Option<f64> {
        if self.no_split_reason.is_some() {
            return None;
        }
        let found = self.variants.iter().find(|known| known.key == variant)?;
        found.share.filter(|share| *share > 0.0)
    }

    /// The position of a variant: the flag's order, others after them.
    pub fn position(&self, variant: &str) -> usize {
        self.variants.iter().position(|known| known.key == variant).unwrap_or(self.variants.len())
    }
}
