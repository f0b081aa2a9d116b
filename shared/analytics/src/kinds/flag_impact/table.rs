//! Results of flag impact as tables.

use serde_json::Value;

use crate::kinds::table::{TableRows, cell, heading, list};

/// The table of a result: a row for each variant, and one for persons that saw several.
pub(super) fn rows(result: &Value) -> TableRows {
    let value = if result["measure"] == "mean" { "mean" } else { "rate" };
    let chance = if result["method"] == "bayesian" { "chance_to_win" } else { "p_value" };
    let head = heading(&[
        "variant",
        "exposed",
        "converted",
        value,
        "difference",
        "low",
        "high",
        "relative",
        chance,
        "verdict",
    ]);
    let row = |variant: &Value| {
        let own = ["variant", "exposed", "converted", value].map(|key| cell(&variant[key]));
        let compared = &variant["comparison"];
        let interval = &compared["difference_interval"];
        let compared = [
            &compared["difference"],
            &interval[0],
            &interval[1],
            &compared["relative_difference"],
            &compared[chance],
        ];
        own.into_iter().chain(compared.map(cell)).chain([cell(&variant["verdict"])]).collect()
    };
    let several = vec!["several variants".to_owned(), cell(&result["several_variants"]["exposed"])];
    std::iter::once(head).chain(list(&result["variants"]).iter().map(row)).chain([several]).collect()
}
