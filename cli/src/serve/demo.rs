//! The demo workspace of a first start.
pub struct Demo;
impl Demo {
    pub fn introduction(&self, _http: &str) -> String {
        String::new()
    }
}
pub async fn load(_s: &super::router::Services, _now: chrono::DateTime<chrono::Utc>) -> Result<Demo, String> {
    Ok(Demo)
}
