//! `pennon flags`.

use chrono::Utc;
use pennon::args::{Flags, FlagsCommand};
use pennon::client::{Access, ApiClient};
use pennon::output::{print, print_json};
use pennon::show::text::output_width;
use pennon::{flags, print_line};

pub(super) async fn manage(options: Flags) -> Result<(), String> {
    match options.command {
        FlagsCommand::List(options) => {
            let client = ApiClient::connect(&options.target, Access::Read).await?;
            let page = flags::list(&client, &options).await?;
            if options.output.json {
                return print_json(&page);
            }
            print(format_args!("{}", flags::list_text(&page, Utc::now(), output_width())))
        }
        FlagsCommand::Get(options) => {
            let client = ApiClient::connect(&options.target, Access::Read).await?;
            let flag = flags::find(&client, &options.key).await?;
            if options.output.json {
                return print_json(&flag);
            }
            print(format_args!("{}", flags::flag_text(&flag, Utc::now())))
        }
        FlagsCommand::Set(options) => {
            let client = ApiClient::connect(&options.target, Access::Change(options.user.as_deref())).await?;
            let change = flags::set(&client, &options).await?;
            if options.output.json {
                return print_json(&change.flag);
            }
            if change.lines.is_empty() {
                return print_line!("nothing to change: {} is so already", options.key);
            }
            change.lines.iter().try_for_each(|line| print_line!("{}: {line}", options.key))?;
            print_line!("version {}", change.flag["version"])
        }
        FlagsCommand::Test(options) => {
            let client = ApiClient::connect(&options.target, Access::Read).await?;
            let evaluated = flags::evaluate(&client, &options).await?;
            if options.output.json {
                return print_json(&evaluated.to_json());
            }
            print(format_args!("{}", evaluated.to_text()))
        }
    }
}
