//! A row of the targets: numbers with their bounds.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::cmd::perf::table;

/// The bound of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// This value or more.
    AtLeast(f64),
    /// This value or less.
    AtMost(f64),
}

impl Bound {
    /// Returns whether a number is within the bound; NaN is not.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, "at least {least}"),
            Self::AtMost(most) => write!(f, "at most {most}"),
        }
    }
}

impl Serialize for Bound {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One number of a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// The measured value, with its unit.
    pub figure: String,
    /// The reference value.
    pub against: String,
    /// The ratio.
    pub is: f64,
    /// The bound.
    pub bound: Bound,
}

impl Check {
    /// Returns the ratio of `value` to `floor`; both are shown with `unit`.
    pub fn ratio(what: &str, value: f64, unit: &str, floor: (&str, f64), bound: Bound) -> Self {
        Self {
            figure: format!("{what} {} {unit}", table::figure(value)),
            against: format!("{}: {} {unit}", floor.0, table::figure(floor.1)),
            // Without a reference, no bound holds.
            is: if floor.1 > 0.0 { value / floor.1 } else { f64::NAN },
            bound,
        }
    }

    /// Returns whether the number is within its bound.
    pub fn holds(&self) -> bool {
        self.bound.holds(self.is)
    }

    /// Returns the number.
    pub fn shown(&self) -> String {
        if self.is.is_nan() { "unknown".to_owned() } else { table::figure(self.is) }
    }
}

/// A row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The subject.
    pub what: String,
    /// The numbers, which must all hold.
    pub checks: Vec<Check>,
    /// The reason why there are no numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

impl Row {
    /// Returns a row with its numbers, or with the error of the measurement.
    pub fn new<E: fmt::Display>(what: &str, checks: Result<Vec<Check>, E>) -> Self {
        let what = what.to_owned();
        match checks {
            Ok(checks) => Self { what, checks, trouble: None },
            Err(error) => Self { what, checks: Vec::new(), trouble: Some(error.to_string()) },
        }
    }

    /// Returns whether the row was measured and every number is within its bound.
    pub fn holds(&self) -> bool {
        self.trouble.is_none() && !self.checks.is_empty() && self.checks.iter().all(Check::holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: f64, floor: f64, bound: Bound) -> Check {
        Check::ratio("WRITE", value, "Gb/s", ("UDP", floor), bound)
    }

    fn row(checks: Vec<Check>) -> Row {
        Row::new::<&str>("a row", Ok(checks))
    }

    #[test]
    fn bounds_hold_at_their_edges_and_never_for_what_is_no_number() {
        assert!(Bound::AtLeast(0.7).holds(0.7) && !Bound::AtLeast(0.7).holds(0.699));
        assert!(Bound::AtMost(1.3).holds(1.3) && !Bound::AtMost(1.3).holds(1.301));
        for bound in [Bound::AtLeast(0.0), Bound::AtMost(1e9)] {
            assert!(!bound.holds(f64::NAN));
        }
    }

    #[test]
    fn a_row_holds_when_all_its_numbers_do() {
        let (good, bad) =
            (check(42.0, 60.0, Bound::AtLeast(0.7)), check(30.0, 60.0, Bound::AtLeast(0.7)));
        assert!(row(vec![good.clone()]).holds());
        assert!(!row(vec![good.clone(), bad]).holds());
        assert!(
            !row(vec![good, check(42.0, 0.0, Bound::AtMost(9.0))]).holds(),
            "a floor of nothing"
        );
        assert!(!row(Vec::new()).holds(), "nothing was measured");
        assert!(!Row::new("a row", Err("no such device")).holds());
    }

    #[test]
    fn numbers_are_shown_with_what_they_are_compared_with() {
        let check = check(42.0, 60.0, Bound::AtLeast(0.7));
        assert_eq!(
            (check.figure.as_str(), check.against.as_str()),
            ("WRITE 42.0 Gb/s", "UDP: 60.0 Gb/s")
        );
        assert_eq!(
            (check.shown().as_str(), check.bound.to_string().as_str()),
            ("0.700", "at least 0.7")
        );
    }

    #[test]
    fn the_object_of_a_row() {
        let row = row(vec![check(42.0, 60.0, Bound::AtLeast(0.7))]);
        insta::assert_json_snapshot!(row, @r#"
        {
          "what": "a row",
          "checks": [
            {
              "figure": "WRITE 42.0 Gb/s",
              "against": "UDP: 60.0 Gb/s",
              "is": 0.7,
              "bound": "at least 0.7"
            }
          ]
        }
        "#);
    }
}
