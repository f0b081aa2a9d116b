//! The dashboards that an insight is on.

use serde_json::{Value, json};
use stateright::semantics::SequentialSpec;

use super::{Client, ObjectKind, documented};
use crate::Random;

/// An insight and two dashboards: both sides show the same tiles.
#[derive(Debug)]
pub struct DashboardTiles {
    insight: u64,
    dashboards: [u64; 2],
}

/// A call about the tiles.
#[derive(Debug, Clone, PartialEq)]
pub enum TileOp {
    /// Put the insight on these dashboards only.
    Put([bool; 2]),
    /// Read the dashboards of the insight.
    OfInsight,
    /// Read whether the insight is on a dashboard.
    OfDashboard(usize),
}

/// The response.
#[derive(Debug, Clone, PartialEq)]
pub enum TileRet {
    /// The dashboards of the insight.
    Insight([bool; 2]),
    /// Whether the dashboard has the insight.
    Dashboard(bool),
}

/// The dashboards that the insight is on.
#[derive(Debug, Clone, Default)]
pub struct TileState([bool; 2]);

impl SequentialSpec for TileState {
    type Op = TileOp;
    type Ret = TileRet;

    fn invoke(&mut self, op: &TileOp) -> TileRet {
        match op {
            TileOp::Put(on) => self.0 = *on,
            TileOp::OfInsight => {}
            TileOp::OfDashboard(number) => return TileRet::Dashboard(self.0[*number]),
        }
        TileRet::Insight(self.0)
    }
}

impl ObjectKind for DashboardTiles {
    const NAME: &'static str = "tiles";
    type Op = TileOp;
    type Ret = TileRet;
    type Spec = TileState;

    async fn create(client: &Client, _: u64) -> DashboardTiles {
        let query = json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "seen"}]});
        let id = |record: Value| record["id"].as_u64().expect("an id");
        let insight = id(client.make("insights/", json!({"name": "a", "query": query})).await);
        let first = id(client.make("dashboards/", json!({"name": "a"})).await);
        let second = id(client.make("dashboards/", json!({"name": "b"})).await);
        DashboardTiles { insight, dashboards: [first, second] }
    }

    fn spec(&self) -> TileState {
        TileState::default()
    }

    fn next(&self, _: &[TileRet], _: u64, random: &mut Random) -> TileOp {
        let number = random.below(4);
        match random.below(10) {
            0..2 => TileOp::OfInsight,
            2..5 => TileOp::OfDashboard(usize::from(number.is_multiple_of(2))),
            _ => TileOp::Put([number & 1 == 0, number & 2 == 0]),
        }
    }

    async fn call(&self, client: &Client, op: &TileOp) -> Option<TileRet> {
        let insight = format!("insights/{}/", self.insight);
        let response = match op {
            TileOp::Put(on) => {
                let chosen = self.dashboards.iter().zip(on).filter(|(_, on)| **on);
                let ids: Vec<u64> = chosen.map(|(id, _)| *id).collect();
                client.owner("PATCH", &insight, json!({"dashboards": ids})).await
            }
            TileOp::OfInsight => client.owner("GET", &format!("{insight}?basic=true"), Value::Null).await,
            TileOp::OfDashboard(number) => {
                client.owner("GET", &format!("dashboards/{}/", self.dashboards[*number]), Value::Null).await
            }
        };
        let body = documented(response, &[200])?.json();
        if let TileOp::OfDashboard(_) = op {
            let mut tiles = body["tiles"].as_array().into_iter().flatten();
            return Some(TileRet::Dashboard(tiles.any(|tile| tile["insight"]["id"] == self.insight)));
        }
        let dashboards = body["dashboards"].as_array().expect("dashboards");
        Some(TileRet::Insight(self.dashboards.map(|id| dashboards.contains(&json!(id)))))
    }

    fn is_read(op: &TileOp) -> bool {
        !matches!(op, TileOp::Put(_))
    }
}
