//! SQL literals, names and condition lists.
//!
//! Must stay true: all texts are quoted and escaped.

/// A string literal.
pub(crate) fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('\'');
    for letter in text.chars() {
        match letter {
            '\\' => out.push_str(r"\\"),
            '\'' => out.push_str(r"\'"),
            '\0' => out.push_str(r"\0"),
            '\n' => out.push_str(r"\n"),
            '\r' => out.push_str(r"\r"),
            other => out.push(other),
        }
    }
    out.push('\'');
    out
}

/// The name of a column.
pub(crate) fn name(name: &str) -> String {
    let quoted = text(name);
    let inner = quoted.get(1..quoted.len() - 1).unwrap_or_default();
    format!("`{}`", inner.replace('`', r"\`"))
}

/// A number with all its digits.
pub(crate) fn float(number: f64) -> String {
    format!("toFloat64({})", text(&format!("{number:?}")))
}

/// Comma-separated string literals, without brackets.
pub(crate) fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    texts.into_iter().map(text).collect::<Vec<_>>().join(", ")
}

/// The AND of conditions, simplified.
pub(crate) fn all(conditions: impl Iterator<Item = String>) -> String {
    let conditions: Vec<String> = conditions.filter(|condition| condition != TRUE).collect();
    match conditions.len() {
        0 => TRUE.to_owned(),
        1 => conditions.concat(),
        _ if conditions.iter().any(|condition| condition == FALSE) => FALSE.to_owned(),
        _ => format!("({})", conditions.join(" AND ")),
    }
}

/// The OR of conditions, simplified.
pub(crate) fn any(mut conditions: Vec<String>) -> String {
    conditions.retain(|condition| condition != FALSE);
    match conditions.len() {
        0 => FALSE.to_owned(),
        1 => conditions.concat(),
        _ if conditions.iter().any(|condition| condition == TRUE) => TRUE.to_owned(),
        _ => format!("({})", conditions.join(" OR ")),
    }
}

/// The condition that is always true.
pub(super) const TRUE: &str = "1";
/// The condition that is always false.
pub(super) const FALSE: &str = "0";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        assert_eq!(text("it's"), r"'it\'s'");
        assert_eq!(text(r"a\' OR 1 --"), r"'a\\\' OR 1 --'");
        assert_eq!(text("a\0b\n"), r"'a\0b\n'");
        assert_eq!(name("p.a`b'c\\"), r"`p.a\`b\'c\\`");
        assert_eq!(name("'x'"), r"`\'x\'`");
        assert_eq!(name(r"x\"), r"`x\\`");
        assert_eq!(name("'"), r"`\'`");
    }

    #[test]
    fn conditions_are_simplified() {
        let all = |list: &[&str]| all(list.iter().map(|text| (*text).to_owned()));
        let any = |list: &[&str]| any(list.iter().map(|text| (*text).to_owned()).collect());
        assert_eq!(
            (all(&[]), all(&["1", "a"]), all(&["a", "b"])),
            ("1".into(), "a".into(), "(a AND b)".into())
        );
        assert_eq!((any(&[]), any(&["0", "a"]), any(&["a", "1"])), ("0".into(), "a".into(), "1".into()));
        assert_eq!(all(&["a", "0"]), "0");
    }
}
