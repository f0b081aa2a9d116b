#![allow(clippy::unwrap_used)]
//! Each row of the table of generic field errors, with its text; each accepted form of a value.

use serde_json::json;

use super::*;

const TEXT: TextRule = TextRule { max_chars: 5, blank: false, trim: true };

fn refusal<T: std::fmt::Debug>(result: Result<T, FieldError>) -> (&'static str, String, Option<String>) {
    let error = result.unwrap_err();
    (error.code, error.detail, error.attr)
}

fn refused(code: &'static str, detail: &str) -> (&'static str, String, Option<String>) {
    (code, detail.to_owned(), Some("f".to_owned()))
}

#[test]
fn absent_null_and_present_are_distinct() {
    let body = json!({"there": true, "nothing": null});
    let body = body.as_object().unwrap();
    assert_eq!(BodyField::of(body, "gone").sent(boolean).unwrap(), None);
    assert_eq!(BodyField::of(body, "there").sent(boolean).unwrap(), Some(true));
    assert_eq!(BodyField::of(body, "gone").nullable(boolean).unwrap(), None);
    assert_eq!(BodyField::of(body, "nothing").nullable(boolean).unwrap(), Some(None));
    assert_eq!(BodyField::of(body, "there").nullable(boolean).unwrap(), Some(Some(true)));
    assert_eq!(
        refusal(BodyField::new("f", None).required(boolean)),
        refused("required", "This field is required.")
    );
    let null = refused("null", "This field may not be null.");
    assert_eq!(refusal(BodyField::new("f", Some(&json!(null))).required(boolean)), null);
    assert_eq!(refusal(BodyField::new("f", Some(&json!(null))).sent(boolean)), null);
}

#[test]
fn strings() {
    assert_eq!(string("f", &json!(" ab "), TEXT).unwrap(), "ab");
    assert_eq!(string("f", &json!(12), TEXT).unwrap(), "12");
    assert_eq!(string("f", &json!("ééééé"), TEXT).unwrap(), "ééééé");
    let free = TextRule { blank: true, trim: false, ..TEXT };
    assert_eq!(string("f", &json!(" a "), free).unwrap(), " a ");
    assert_eq!(string("f", &json!(""), free).unwrap(), "");
    for value in [json!(true), json!([]), json!({})] {
        assert_eq!(refusal(string("f", &value, TEXT)), refused("invalid_input", "Not a valid string."));
    }
    for value in ["", "   "] {
        let blank = refused("blank", "This field may not be blank.");
        assert_eq!(refusal(string("f", &json!(value), TEXT)), blank);
    }
    let long = refused("max_length", "Ensure this field has no more than 5 characters.");
    assert_eq!(refusal(string("f", &json!("abcdef"), TEXT)), long);
}

#[test]
fn booleans() {
    for yes in [
        json!(true),
        json!(1),
        json!("True"),
        json!("true"),
        json!("1"),
        json!("t"),
        json!("y"),
        json!("yes"),
    ] {
        assert!(boolean("f", &yes).unwrap(), "{yes}");
    }
    assert!(boolean("f", &json!("on")).unwrap());
    for no in [
        json!(false),
        json!(0),
        json!("False"),
        json!("0"),
        json!("f"),
        json!("n"),
        json!("no"),
        json!("off"),
    ] {
        assert!(!boolean("f", &no).unwrap(), "{no}");
    }
    for other in [json!("maybe"), json!(2), json!([]), json!({}), json!("")] {
        assert_eq!(refusal(boolean("f", &other)), refused("invalid_input", "Must be a valid boolean."));
    }
}

#[test]
fn integers() {
    for value in [json!(50), json!("50"), json!(50.0), json!(" 50 "), json!("50.0")] {
        assert_eq!(integer("f", &value, None).unwrap(), 50);
    }
    assert_eq!(integer("f", &json!(-3), None).unwrap(), -3);
    for value in [json!(1.5), json!("x"), json!(true), json!([]), json!(""), json!(1e300), json!("1.5")] {
        assert_eq!(
            refusal(integer("f", &value, None)),
            refused("invalid_input", "A valid integer is required.")
        );
    }
    let small = refused("min_value", "Ensure this value is greater than or equal to 1.");
    assert_eq!(refusal(integer("f", &json!(0), Some(1))), small);
}

#[test]
fn choices() {
    assert_eq!(choice("f", &json!("all"), &["server", "all"]).unwrap(), "all");
    let cases =
        [(json!("edge"), "edge"), (json!(1), "1"), (json!(true), "True"), (json!(["all"]), "['all']")];
    for (value, printed) in cases {
        let detail = format!("\"{printed}\" is not a valid choice.");
        assert_eq!(refusal(choice("f", &value, &["server", "all"])), refused("invalid_choice", &detail));
    }
}

#[test]
fn objects_and_lists() {
    assert!(object("f", &json!({})).unwrap().is_empty());
    assert!(list("f", &json!([])).unwrap().is_empty());
    for (value, got) in [
        (json!([]), "list"),
        (json!("x"), "str"),
        (json!(1), "int"),
        (json!(true), "bool"),
        (json!(1.5), "float"),
    ] {
        let detail = format!("Expected a dictionary of items but got type \"{got}\".");
        assert_eq!(refusal(object("f", &value)), refused("not_a_dict", &detail));
    }
    for (value, got) in [
        (json!({}), "dict"),
        (json!("x"), "str"),
        (json!(1), "int"),
        (json!(true), "bool"),
        (json!(1.5), "float"),
    ] {
        let detail = format!("Expected a list of items but got type \"{got}\".");
        assert_eq!(refusal(list("f", &value)), refused("not_a_list", &detail));
    }
}

#[test]
fn keys_of_records() {
    assert_eq!(integer_key("f", &json!("7")).unwrap(), 7);
    let wrong = refused("incorrect_type", "Incorrect type. Expected pk value, received str.");
    assert_eq!(refusal(integer_key("f", &json!("x"))), wrong);
    let wrong = refused("incorrect_type", "Incorrect type. Expected pk value, received bool.");
    assert_eq!(refusal(uuid_key("f", &json!(true))), wrong);
    let id = "00000000-0000-4000-8000-000000000000";
    assert_eq!(uuid_key("f", &json!(id)).unwrap().to_string(), id);
    let wrong = refused("invalid_input", "\u{201c}not-a-uuid\u{201d} is not a valid UUID.");
    assert_eq!(refusal(uuid_key("f", &json!("not-a-uuid"))), wrong);
    let gone =
        FieldError::new("f", "does_not_exist", format!("Invalid pk \"{id}\" - object does not exist."));
    assert_eq!(does_not_exist("f", id), gone);
}

#[test]
fn timestamps() {
    assert!(datetime("f", &json!("2024-01-01T00:00:00Z")).is_ok());
    let detail = "Datetime has wrong format. Use one of these formats instead: \
                  YYYY-MM-DDThh:mm[:ss[.uuuuuu]][+HH:MM|-HH:MM|Z].";
    for value in [json!("soon"), json!(1), json!({})] {
        assert_eq!(refusal(datetime("f", &value)), refused("invalid_input", detail));
    }
}
