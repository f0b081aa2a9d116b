//! The kinds of records that can be shared: insights and dashboards.

use pennon_core::auth::{Access, SharedRecordId};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Item, Key, StoreError, Table, Write};

use crate::dashboards::DashboardRecord;
use crate::insight::Insight;
use crate::placement::{Dashboards, Placement, tiles};
use crate::resource::{self, Resource};

/// A kind of record that can be shared by a link.
pub trait Shareable: Resource {
    /// The detail of the 404 of a record that does not exist.
    const MISSING: &'static str;

    /// The key of the sharing configuration of a record.
    fn sharing_key(project: ProjectId, id: u64) -> Key;
    /// What the row of a token of a record names.
    fn shared_id(id: u64) -> SharedRecordId;
    /// The part of a token's message that names the record. It is different for each record of a project.
    fn token_subject(id: u64) -> String;
    /// 403 unless the caller may edit the record.
    fn require_edit(&self, records: &Table, access: &Access) -> impl Future<Output = ApiResult<()>> + Send;
    /// Further writes of the transaction that enables or disables sharing. `item` is the record as it was read.
    fn switch_writes(
        &self,
        _project: ProjectId,
        _item: &Item,
        _enabled: bool,
    ) -> Result<Vec<Write>, StoreError> {
        Ok(Vec::new())
    }
}

impl Shareable for Insight {
    const MISSING: &'static str = "Insight not found.";

    fn sharing_key(project: ProjectId, id: u64) -> Key {
        keys::sharing(project, id)
    }

    fn shared_id(id: u64) -> SharedRecordId {
        SharedRecordId::Insight(id)
    }

    fn token_subject(id: u64) -> String {
        id.to_string()
    }

    async fn require_edit(&self, records: &Table, access: &Access) -> ApiResult<()> {
        let dashboard_ids = tiles::current_dashboards(&self.tiles);
        let dashboards = Dashboards::load(records, access.project.id, dashboard_ids).await?;
        Placement::new(&self.tiles, &dashboards, access).require_edit()
    }
}

impl Shareable for DashboardRecord {
    const MISSING: &'static str = "Dashboard not found.";

    fn sharing_key(project: ProjectId, id: u64) -> Key {
        keys::dashboard_sharing(project, id)
    }

    fn shared_id(id: u64) -> SharedRecordId {
        SharedRecordId::Dashboard(id)
    }

    fn token_subject(id: u64) -> String {
        format!("dashboard {id}")
    }

    async fn require_edit(&self, _records: &Table, access: &Access) -> ApiResult<()> {
        if self.is_editable_by(access) {
            return Ok(());
        }
        Err(ApiError::forbidden("You don't have edit permissions for this dashboard."))
    }

    /// The record has the field `is_shared`, which lists show.
    fn switch_writes(
        &self,
        project: ProjectId,
        item: &Item,
        enabled: bool,
    ) -> Result<Vec<Write>, StoreError> {
        let after = DashboardRecord { is_shared: enabled, ..self.clone() };
        resource::record_writes(project, Some(item), &after)
    }
}
