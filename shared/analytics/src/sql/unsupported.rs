//! Names of unsupported SQL constructs, for error texts.

use sqlparser::ast::Expr;

/// The name of an unsupported expression.
pub(super) fn construct_name(expr: &Expr) -> String {
    let name = match expr {
        Expr::UnaryOp { op, .. } => return format!("the operator {op}"),
        Expr::Case { .. } => "case",
        Expr::Cast { .. } => "cast",
        Expr::Convert { .. } => "convert",
        Expr::Between { .. } => "between",
        Expr::Subquery(_) | Expr::InSubquery { .. } | Expr::Exists { .. } => "queries inside of expressions",
        Expr::InUnnest { .. } => "unnest",
        Expr::CompoundFieldAccess { .. } | Expr::Array(_) => "[ ]",
        Expr::JsonAccess { .. } => "access to JSON",
        Expr::Tuple(_) => "lists of values",
        Expr::Lambda(_) => "functions as arguments",
        Expr::Interval(_) => "interval",
        Expr::TypedString { .. } => "a type before a text",
        Expr::SimilarTo { .. } => "similar to",
        Expr::RLike { .. } => "rlike",
        Expr::Like { .. } | Expr::ILike { .. } => "like with any or escape",
        Expr::IsTrue(_) | Expr::IsNotTrue(_) | Expr::IsFalse(_) | Expr::IsNotFalse(_) => {
            "is true or is false"
        }
        Expr::IsDistinctFrom(..) | Expr::IsNotDistinctFrom(..) => "is distinct from",
        Expr::Extract { .. } => "extract from",
        Expr::Trim { .. } => "trim with a side",
        Expr::Substring { .. } => "substring",
        Expr::Position { .. } => "position",
        Expr::Floor { .. } | Expr::Ceil { .. } => "floor to a unit",
        Expr::Collate { .. } => "collate",
        Expr::AtTimeZone { .. } => "at time zone",
        Expr::Wildcard(_) | Expr::QualifiedWildcard(..) => "*",
        Expr::AnyOp { .. } | Expr::AllOp { .. } => "comparisons with any or all",
        _ => "a part of this expression",
    };
    name.to_owned()
}
