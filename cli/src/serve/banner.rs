//! What `pennon serve` says when it is ready.
#![expect(clippy::print_stdout, reason = "this is the command's output")]

use crate::data::{DataDirectory, ServerInfo};
use crate::workspace::NewKey;

use super::demo::Demo;

/// Prints where the product is, and after the first start how to try it.
pub fn print(info: &ServerInfo, directory: &DataDirectory, first_start: Option<&Demo>) {
    println!("Pennon serves on {}", info.http);
    println!("  reference          {}/docs", info.http);
    println!("  embedded DynamoDB  {}", info.dynamodb);
    println!("  data               {}", directory.path().display());
    if let Some(demo) = first_start {
        println!();
        print!("{}", demo.introduction(&info.http));
    } else {
        println!(
            "  API keys           pennon keys create --data {} --label NAME",
            directory.path().display()
        );
    }
    println!();
    println!("Ctrl-C stops it.");
}

/// Prints the secrets of keys that were made, which nothing can show again.
pub fn print_new_keys(keys: &[NewKey]) {
    for key in keys {
        println!("new key \"{}\" of {}: {}", key.label, key.user, key.secret);
    }
}
