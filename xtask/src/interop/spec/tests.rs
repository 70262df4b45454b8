//! One altered fact at a time, and that it is told.

use super::shape::Shape;
use super::{Found, compare, theirs};
use crate::codegen;

const OURS: &str = "\
api 1 Fetch
request 4-6  flexible 6+
  MaxWaitMs  int32    0+
  Rack       string   5+    nullable 6+  default null  ignorable
  Topics     []Topic  0+
    Name  string  0-5  key
    Id    uuid    6+
  Cluster    string   6+    nullable 6+  default null  tag 0
  Epochs     []int32  6+    nullable 6+  tag 1
  Limit      int64    0+    default 2147483647

response 4-6  flexible 6+
  ErrorCode  error  0+
";

const THEIRS: &str = r#"// A comment
{ "apiKey": 1, "type": "request", "listeners": ["broker", "controller"], "name": "FetchRequest",
  // Another { one
  "validVersions": "4-7", "latestVersionUnstable": true, "flexibleVersions": "6+",
  "fields": [
    { "name": "MaxWaitMs", "type": "int32", "versions": "0+", "about": "a // in text" },
    { "name": "Rack", "type": "string", "versions": "5+", "nullableVersions": "6+",
      "default": "null", "ignorable": true }, // behind
    { "name": "Topics", "type": "[]Topic", "versions": "0+", "fields": [
      { "name": "name", "type": "string", "versions": "0-5", "mapKey": true },
      { "name": "Id", "type": "uuid", "versions": "6+" } ]},
    { "name": "Cluster", "type": "string", "taggedVersions": "6+", "tag": 0,
      "nullableVersions": "6+", "default": "null" },
    { "name": "Epochs", "type": "[]int32", "taggedVersions": "6+", "tag": 1,
      "nullableVersions": "6+", "default": null },
    { "name": "Limit", "type": "int64", "versions": "0+", "default": "0x7fffffff" },
    { "name": "Later", "type": "int8", "versions": "7+" }
  ] }"#;

const ANSWER: &str = r#"{ "apiKey": 1, "type": "response", "name": "FetchResponse",
  "validVersions": "4-7", "flexibleVersions": "6+",
  "fields": [{ "name": "ErrorCode", "type": "int16", "versions": "0+" }] }"#;

const ROW: &str = "head\n1\tFetch\t4\t6\t6\tyes\tyes\t4\t-\n";

fn found(ours: &str, theirs: &[&str]) -> Found {
    let messages = codegen::parsed("x.msg", ours).unwrap();
    let shapes: Vec<Shape> = messages.iter().map(Shape::of).collect();
    let mut theirs: Vec<_> = theirs.iter().map(|text| theirs::read(text).unwrap()).collect();
    theirs::without_unstable(&mut theirs);
    compare(&shapes, &theirs, &codegen::api_rows(ROW).unwrap())
}

#[test]
fn equal_definitions_have_no_difference() {
    let found = found(OURS, &[THEIRS, ANSWER]);
    assert_eq!(found.differences, Vec::<String>::new());
    // Request: 7 facts in each version, of which those left out count; response: 1.
    assert_eq!((found.apis, found.versions, found.fields), (1, 6, 27));
}

#[test]
fn every_altered_fact_is_told() {
    let cases = [
        ("MaxWaitMs  int32    0+", "MaxWaitMs  int64    0+", "MaxWaitMs int64"),
        ("MaxWaitMs", "MaxWait", "MaxWait int32"),
        ("MaxWaitMs  int32    0+", "MaxWaitMs  int32    5+", "4: ours `MaxWaitMs int32"),
        ("nullable 6+  default null  ignorable", "nullable 5+  default null  ignorable", " 5: "),
        ("default null  ignorable", "default null", "refused"),
        ("default null  ignorable", "ignorable", "Rack string, default empty"),
        ("0-5  key", "0-5", "Topics.Name"),
        ("0-5  key", "0-4  key", "Topics.Name"),
        ("Id    uuid    6+", "Id    int64   6+", "Topics.Id int64"),
        (
            "tag 0\n  Epochs     []int32  6+    nullable 6+  tag 1",
            "tag 1\n  Epochs     []int32  6+    nullable 6+  tag 0",
            "Cluster",
        ),
        ("nullable 6+  tag 1", "nullable 6+  default null  tag 1", "Epochs"),
        ("2147483647", "2147483646", "Limit"),
        ("request 4-6", "request 5-6", "versions 5-6"),
        ("4-6  flexible 6+\n  ErrorCode", "4-6  flexible 5+\n  ErrorCode", "flexible from 5"),
        ("  Limit      int64    0+    default 2147483647\n", "", "nothing more"),
        ("api 1", "api 2", "key 2"),
        ("ErrorCode  error", "ErrorCode  int32", "FetchResponse 4, 5, 6: "),
    ];
    for (from, to, expected) in cases {
        let altered = OURS.replacen(from, to, 1);
        assert_ne!(altered, OURS, "{from}");
        let found = found(&altered, &[THEIRS, ANSWER]);
        let told = found.differences.join("\n");
        assert!(told.contains(expected), "{from} -> {to}: {told}");
    }
}

#[test]
fn what_one_side_alone_has_is_told() {
    let record = r#"{ "apiKey": 3, "type": "metadata", "name": "NewRecord",
        "validVersions": "0", "flexibleVersions": "0+", "fields": [] }"#;
    let told = found(OURS, &[THEIRS, ANSWER, record]).differences.join("\n");
    assert!(told.contains("NewRecord: we have no such"), "{told}");
    let told = found(OURS, &[THEIRS]).differences.join("\n");
    assert!(told.contains("FetchResponse: Kafka has no such"), "{told}");
}

#[test]
fn the_table_of_apis_is_compared_too() {
    for (from, to) in [("\"4-7\"", "\"3-7\""), (", \"controller\"", ""), ("\"6+\",", "\"5+\",")] {
        let told = found(OURS, &[&THEIRS.replacen(from, to, 1), ANSWER]).differences.join("\n");
        assert!(told.contains("apis.tsv"), "{from}: {told}");
    }
    let removed = r#"{ "apiKey": 4, "type": "request", "name": "StopReplicaRequest",
        "validVersions": "none" }"#;
    assert_eq!(found(OURS, &[THEIRS, ANSWER, removed]).differences, Vec::<String>::new());
    let added = r#"{ "apiKey": 95, "type": "request", "name": "NewRequest",
        "validVersions": "0", "flexibleVersions": "0+", "fields": [] }"#;
    let told = found(OURS, &[THEIRS, ANSWER, added]).differences.join("\n");
    assert!(told.contains("New is on one side alone"), "{told}");
}
