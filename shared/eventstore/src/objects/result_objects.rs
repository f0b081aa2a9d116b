//! Objects with calculation results that are too large for the table.
//!
//! They are outside the folders of events, at `results/project=P/CACHE_KEY.ID`, so that a lifecycle rule of the
//! bucket can delete them by age. The row of a result holds the name of its object and a digest to verify it.
//!
//! Must stay true: a request does not wait long for them, because an unreadable result is recalculated;
//! deciding which listed objects are unused is left to the sweep, which knows the rows.

use bytes::Bytes;
use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;

use super::Objects;
use crate::error::EventStoreError;

const FOLDER: &str = "results";
const OF_PROJECT: &str = "project=";

/// The object of a result.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResultObject {
    /// The project of the result.
    pub project: ProjectId,
    /// Cache key of the query.
    pub cache_key: String,
    /// Distinguishes objects of the same query.
    pub id: String,
}

impl ResultObject {
    /// The name of the object.
    pub(crate) fn name(&self) -> String {
        let ResultObject { project, cache_key, id } = self;
        format!("{FOLDER}/{OF_PROJECT}{project}/{cache_key}.{id}")
    }

    fn of_name(name: &str) -> Option<ResultObject> {
        let (project, rest) = name.strip_prefix(FOLDER)?.strip_prefix('/')?.split_once('/')?;
        let (cache_key, id) = rest.split_once('.')?;
        let project = project.strip_prefix(OF_PROJECT)?.parse().ok()?;
        Some(ResultObject { project, cache_key: cache_key.to_owned(), id: id.to_owned() })
    }
}

/// Stores, reads, lists and deletes result objects.
#[derive(Debug)]
pub(crate) struct ResultObjects(Objects);

impl ResultObjects {
    pub(crate) fn new(objects: Objects) -> ResultObjects {
        ResultObjects(objects)
    }

    /// Stores the content of `object`.
    pub(crate) async fn put_result(
        &self,
        object: &ResultObject,
        bytes: Bytes,
    ) -> Result<(), EventStoreError> {
        self.0.put_standalone(&object.name(), bytes).await
    }

    /// Reads `object`, if it exists. The content is not verified.
    pub(crate) async fn get_result(&self, object: &ResultObject) -> Result<Option<Bytes>, EventStoreError> {
        self.0.get_standalone(&object.name()).await
    }

    /// Lists the result objects of one project, or of all, unordered, each with its last modified time.
    pub(crate) async fn list_results(
        &self,
        project: Option<ProjectId>,
    ) -> Result<Vec<(ResultObject, Micros)>, EventStoreError> {
        let folder = match project {
            Some(project) => format!("{FOLDER}/{OF_PROJECT}{project}"),
            None => FOLDER.to_owned(),
        };
        let listed = self.0.list(&folder).await?.into_iter();
        Ok(listed.filter_map(|listed| Some((ResultObject::of_name(&listed.name)?, listed.at))).collect())
    }

    /// Deletes result objects; missing ones are no error.
    pub(crate) async fn remove_results(&self, objects: &[ResultObject]) -> Result<(), EventStoreError> {
        let names = objects.iter().map(ResultObject::name).collect::<Vec<_>>();
        self.0.remove_standalone(&names).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_results_are_parsed_and_others_are_ignored() {
        let object =
            ResultObject { project: 12, cache_key: "cache_00ff".to_owned(), id: "a-b.json.zst".to_owned() };
        assert_eq!(object.name(), "results/project=12/cache_00ff.a-b.json.zst");
        assert_eq!(ResultObject::of_name(&object.name()), Some(object));
        for other in
            ["results/project=x/a.b", "results/12/a.b", "results/project=1/a", "project=1/events/a.b"]
        {
            assert_eq!(ResultObject::of_name(other), None, "{other}");
        }
    }
}
