//! Numbers with a magnitude suffix, for the options of `pennon cost`.

/// A number such as 250, 100k, 1M or 10B.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Amount(pub f64);

impl std::str::FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Amount, String> {
        let invalid = || format!("{text} is not a number such as 250, 100k, 1M or 10B");
        let (digits, factor) = match text.chars().last().ok_or_else(invalid)? {
            'k' => (&text[..text.len() - 1], 1e3),
            'M' => (&text[..text.len() - 1], 1e6),
            'B' => (&text[..text.len() - 1], 1e9),
            _ => (text, 1.0),
        };
        let number: f64 = digits.parse().map_err(|_| invalid())?;
        if !(0.0..=1e6).contains(&number) && factor > 1.0 || !(0.0..=1e15).contains(&number) {
            return Err(invalid());
        }
        Ok(Amount(number * factor))
    }
}
