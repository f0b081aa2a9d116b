//! Makes the types that hold any kind from the list of kinds.

/// Defines [`super::Query`], [`super::InsightKind`], [`super::DataPoint`], [`super::PartitionResult`] and
/// `CompiledQuery`, each with a variant per kind that delegates to the traits of [`super::insight`].
macro_rules! register_kinds {
    ($($(#[$doc:meta])+ $kind:ident($query:ty),)+) => {
        use insight::{CompiledInsight, DataPointOf, InsightQuery, PartialOf, RegisteredKind};
        use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
        use serde::ser::{Serialize, Serializer};

        /// An insight query that can be calculated.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Query {
            $($(#[$doc])+ $kind($query),)+
        }

        /// A kind of insight.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum InsightKind {
            $($(#[$doc])+ $kind,)+
        }

        /// A number of a result, whose actors can be listed.
        #[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub enum DataPoint {
            $($(#[$doc])+ $kind(DataPointOf<$query>),)+
        }

        #[derive(Debug, Clone)]
        pub(crate) enum CompiledQuery {
            $($kind(Box<<$query as RegisteredKind>::Compiled>),)+
        }

        #[derive(Debug, Clone, PartialEq)]
        enum KindPartial {
            $($kind(Box<PartialOf<$query>>),)+
        }

        /// The mergeable result of one partition. The default is the result for no actors.
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct PartitionResult(Option<KindPartial>);

        $(
            impl From<$query> for Query {
                fn from(query: $query) -> Self {
                    Self::$kind(query)
                }
            }
        )+

        $(
            impl From<PartialOf<$query>> for PartitionResult {
                fn from(partial: PartialOf<$query>) -> Self {
                    Self(Some(KindPartial::$kind(Box::new(partial))))
                }
            }
        )+

        impl InsightKind {
            /// All kinds, in the order of their registration.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)+];

            /// Names, endpoints and parsers.
            pub fn description(self) -> &'static KindDescription {
                match self {
                    $(Self::$kind => const { &<$query as RegisteredKind>::DESCRIPTION },)+
                }
            }

            /// Whether results have an endpoint of their own, `insights/<path>`.
            pub fn has_result_endpoint(self) -> bool {
                match self {
                    $(Self::$kind => <$query as RegisteredKind>::HAS_RESULT_ENDPOINT,)+
                }
            }

            /// How older requests name the kind.
            pub fn legacy_requests(self) -> &'static LegacyRequests {
                match self {
                    $(Self::$kind => const { &<$query as RegisteredKind>::LEGACY_REQUESTS },)+
                }
            }
        }

        impl Query {
            fn as_insight(&self) -> &dyn InsightQuery {
                match self {
                    $(Self::$kind(query) => query,)+
                }
            }

            /// Its kind.
            pub fn kind(&self) -> InsightKind {
                match self {
                    $(Self::$kind(_) => InsightKind::$kind,)+
                }
            }

            pub(crate) fn compile(
                &self,
                project: &crate::project::ProjectContext,
                range: pennon_filters::dates::range::DateRange,
                compiler: &mut crate::compiler::Compiler<'_>,
            ) -> pennon_filters::CalcResult<CompiledQuery> {
                match self {
                    $(Self::$kind(query) => {
                        type Compiled = <$query as RegisteredKind>::Compiled;
                        let compiled = Compiled::compile(query, project, range, compiler)?;
                        Ok(CompiledQuery::$kind(Box::new(compiled)))
                    })+
                }
            }

            /// Parses the parameters of a link to the actors of a data point.
            pub fn data_point(
                &self,
                request: &serde_json::Map<String, Value>,
            ) -> pennon_filters::CalcResult<DataPoint> {
                match self {
                    $(Self::$kind(query) => {
                        type Compiled = <$query as RegisteredKind>::Compiled;
                        Compiled::parse_data_point(query, request).map(DataPoint::$kind)
                    })+
                }
            }

            /// The actor kind that a data point counts: groups if its series counts groups, else the actors of the plan.
            pub fn counted_actors(
                &self,
                point: &DataPoint,
                plan: &super::Plan,
            ) -> crate::scan::ActorKind {
                let groups = match (self, point) {
                    $((Self::$kind(query), DataPoint::$kind(point)) => query.counted_groups(point),)+
                    _ => None,
                };
                groups.unwrap_or_else(|| plan.actors(point))
            }
        }

        impl CompiledQuery {
            pub(crate) fn actor_kind(&self, point: &DataPoint) -> Option<crate::scan::ActorKind> {
                match (self, point) {
                    $((Self::$kind(query), DataPoint::$kind(point)) => query.actor_kind(point),)+
                    _ => None,
                }
            }

            pub(crate) fn relate_partitions(
                &self,
                partitions: Vec<crate::scan::Partition>,
                work: &pennon_filters::work_budget::WorkBudget<'_>,
            ) -> pennon_filters::CalcResult<Vec<crate::scan::Partition>> {
                match self {
                    $(Self::$kind(query) => query.relate_partitions(partitions, work),)+
                }
            }

            pub(crate) fn partial(
                &self,
                partition: &crate::scan::Partition,
                work: &pennon_filters::work_budget::WorkBudget<'_>,
            ) -> pennon_filters::CalcResult<PartitionResult> {
                match self {
                    $(Self::$kind(query) => query.partial(partition, work).map(PartitionResult::from),)+
                }
            }

            pub(crate) fn people(
                &self,
                partition: &crate::scan::Partition,
                point: &DataPoint,
                work: &pennon_filters::work_budget::WorkBudget<'_>,
            ) -> pennon_filters::CalcResult<Vec<crate::people::MatchedActor>> {
                match (self, point) {
                    $((Self::$kind(query), DataPoint::$kind(point)) => query.people(partition, point, work),)+
                    _ => Err(pennon_filters::CalcError::invalid(
                        "insight",
                        "The number is not one of this query.",
                    )),
                }
            }

            pub(crate) fn finish(
                &self,
                merged: PartitionResult,
                work: &pennon_filters::work_budget::WorkBudget<'_>,
            ) -> pennon_filters::CalcResult<QueryOutput> {
                match self {
                    $(Self::$kind(query) => {
                        let partial = match merged.0 {
                            Some(KindPartial::$kind(partial)) => *partial,
                            _ => Default::default(),
                        };
                        query.finish(partial, work)
                    })+
                }
            }

            pub(crate) fn finish_rows(
                &self,
                rows: &crate::clickhouse::SqlRows<'_>,
                work: &pennon_filters::work_budget::WorkBudget<'_>,
            ) -> Result<QueryOutput, crate::clickhouse::RowsError> {
                match self {
                    $(Self::$kind(query) => query.finish_rows(rows, work),)+
                }
            }
        }

        impl PartitionResult {
            /// Merges two partial results of the same plan.
            #[must_use]
            pub fn merge(self, other: Self) -> Self {
                Self(match (self.0, other.0) {
                    $((Some(KindPartial::$kind(left)), Some(KindPartial::$kind(right))) => {
                        type Compiled = <$query as RegisteredKind>::Compiled;
                        Some(KindPartial::$kind(Box::new(Compiled::merge(*left, *right))))
                    })+
                    (left, right) => left.or(right),
                })
            }
        }

        impl Serialize for PartitionResult {
            /// The job form of the kind, and its partial result. The default is an empty text and a unit.
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match &self.0 {
                    None => ("", ()).serialize(serializer),
                    $(Some(KindPartial::$kind(partial)) => {
                        (<$query as RegisteredKind>::DESCRIPTION.endpoint.job_form, partial).serialize(serializer)
                    })+
                }
            }
        }

        impl<'de> Deserialize<'de> for PartitionResult {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_tuple(2, PartitionResultVisitor)
            }
        }

        struct PartitionResultVisitor;

        impl<'de> Visitor<'de> for PartitionResultVisitor {
            type Value = PartitionResult;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("the job form of a kind and a partial result of this kind")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut fields: A) -> Result<PartitionResult, A::Error> {
                let form: String = fields.next_element()?.ok_or_else(|| Error::invalid_length(0, &self))?;
                let partial = match InsightKind::from_job_form(&form) {
                    None if form.is_empty() => fields.next_element::<()>()?.map(|()| PartitionResult::default()),
                    None => return Err(Error::custom(format_args!("the kind \"{form}\" is unknown"))),
                    $(Some(InsightKind::$kind) => {
                        fields.next_element::<PartialOf<$query>>()?.map(PartitionResult::from)
                    })+
                };
                partial.ok_or_else(|| Error::invalid_length(1, &self))
            }
        }
    };
}
