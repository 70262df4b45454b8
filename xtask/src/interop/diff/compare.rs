//! Two answers, field by field.

use super::normal::row_key;
use super::run::CONNECTION;
use super::value::{Path, Step, Value};

/// A field that is not the same in both.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Difference {
    pub(super) path: Path,
    /// `None` where there is no such field.
    pub(super) ours: Option<Value>,
    pub(super) theirs: Option<Value>,
}

/// The fields in which two answers to a request of `api` differ.
pub(super) fn compare(api: &str, ours: &Value, theirs: &Value) -> Vec<Difference> {
    let mut comparison = Comparison { api, found: Vec::new() };
    if ours.field(CONNECTION).is_some() || theirs.field(CONNECTION).is_some() {
        // Where one of them did not answer, there are no fields to compare.
        if ours != theirs {
            let path = Path(vec![Step::Field(CONNECTION.to_owned())]);
            let answered = || Some(Value::text("answered"));
            let ours = ours.field(CONNECTION).cloned().or_else(answered);
            let theirs = theirs.field(CONNECTION).cloned().or_else(answered);
            comparison.found.push(Difference { path, ours, theirs });
        }
    } else {
        comparison.values(&Path::default(), ours, theirs);
    }
    comparison.found
}

struct Comparison<'a> {
    api: &'a str,
    found: Vec<Difference>,
}

impl Comparison<'_> {
    fn differ(&mut self, path: &Path, ours: Option<&Value>, theirs: Option<&Value>) {
        let path = path.clone();
        self.found.push(Difference { path, ours: ours.cloned(), theirs: theirs.cloned() });
    }

    fn either(&mut self, path: &Path, ours: Option<&Value>, theirs: Option<&Value>) {
        match (ours, theirs) {
            (Some(ours), Some(theirs)) => self.values(path, ours, theirs),
            (None, None) => {}
            (ours, theirs) => self.differ(path, ours, theirs),
        }
    }

    fn values(&mut self, path: &Path, ours: &Value, theirs: &Value) {
        match (ours, theirs) {
            (Value::Struct(one), Value::Struct(two)) => {
                let mut names: Vec<&String> = one.iter().map(|(name, _)| name).collect();
                names.extend(two.iter().map(|(name, _)| name));
                let mut done: Vec<&String> = Vec::new();
                for name in names {
                    if !done.contains(&name) {
                        done.push(name);
                        let path = path.with(Step::Field(name.clone()));
                        self.either(&path, ours.field(name), theirs.field(name));
                    }
                }
            }
            (Value::List(one), Value::List(two)) => match row_key(self.api, path) {
                Some(key) => self.rows(path, key, one, two),
                None => {
                    for at in 0..one.len().max(two.len()) {
                        let path = path.with(Step::Item(at.to_string()));
                        self.either(&path, one.get(at), two.get(at));
                    }
                }
            },
            (ours, theirs) if ours == theirs => {}
            (ours, theirs) => self.differ(path, Some(ours), Some(theirs)),
        }
    }

    /// Rows with the same key are compared in the order in which they come.
    fn rows(&mut self, path: &Path, key: &str, ours: &[Value], theirs: &[Value]) {
        let key_of = |row: &Value| {
            let mut fields = key.split(' ').filter_map(|field| row.field(field));
            let set = fields.find(|value| **value != Value::Null && **value != Value::text(""));
            set.map_or_else(String::new, Value::plain)
        };
        let mut keys: Vec<String> = ours.iter().chain(theirs).map(key_of).collect();
        keys.sort();
        keys.dedup();
        for key in keys {
            let path = path.with(Step::Keyed(key.clone()));
            let mut one = ours.iter().filter(|row| key_of(row) == key);
            let mut two = theirs.iter().filter(|row| key_of(row) == key);
            loop {
                let pair = (one.next(), two.next());
                if pair == (None, None) {
                    break;
                }
                self.either(&path, pair.0, pair.1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interop::diff::asking::record;

    fn key(number: i64, max: i64) -> Value {
        record([("ApiKey", Value::Number(number)), ("MaxVersion", Value::Number(max))])
    }

    fn paths(api: &str, ours: &Value, theirs: &Value) -> Vec<String> {
        compare(api, ours, theirs).iter().map(|found| found.path.to_string()).collect()
    }

    #[test]
    fn each_field_that_differs_is_named() {
        let ours = record([("ApiKeys", Value::List(vec![key(1, 2), key(0, 1), key(5, 5)]))]);
        let theirs = record([("ApiKeys", Value::List(vec![key(0, 1), key(1, 3), key(6, 6)]))]);
        let wanted = ["ApiKeys{1}.MaxVersion", "ApiKeys{5}", "ApiKeys{6}"];
        assert_eq!(paths("ApiVersions", &ours, &theirs), wanted);
        let wanted = ["ApiKeys[0].ApiKey", "ApiKeys[0].MaxVersion"];
        assert_eq!(paths("Fetch", &ours, &theirs)[..2], wanted);
        assert!(paths("ApiVersions", &ours, &ours).is_empty());
    }

    #[test]
    fn an_answer_and_none_differ_in_one_thing() {
        let none = record([(CONNECTION, Value::text("closed"))]);
        assert_eq!(paths("Fetch", &key(1, 1), &none), [CONNECTION]);
        assert!(paths("Fetch", &none, &none).is_empty());
    }
}
