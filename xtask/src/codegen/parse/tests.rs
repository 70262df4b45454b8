//! What the form allows, and that errors tell the line.

use super::super::model::{Default, Kind, Message, Span, Type};
use super::super::resolve::resolve;
use super::parse;

fn read(text: &str) -> Result<Vec<Message>, String> {
    parse("x.msg", text).and_then(resolve).map_err(|error| error.to_string())
}

const FETCH: &str = "\
api 1 Fetch
# a comment
request 4-18  flexible 12+
  ClusterId  string  12+  nullable 12+  default null  tag 0  ignorable
  Topics     []Topic  0+   # another
    Name        string  0-12  ignorable  key
    Partitions  []int32  0+
  RackId     string  11+

response 4-18  flexible 12+
  Left   Pair  0+
  Right  Pair  7+
  struct Pair
    Id  uuid  13+
";

#[test]
fn a_definition_is_read_whole() {
    let messages = read(FETCH).unwrap();
    let [request, response] = messages.as_slice() else { panic!("{messages:?}") };
    assert_eq!(request.name, "FetchRequest");
    assert!(matches!(&request.kind, Kind::Request(api) if api.key == 1));
    assert_eq!(request.first_flexible, 12);
    let names: Vec<&str> = request.structs.iter().map(|found| &*found.name).collect();
    assert_eq!(names, ["FetchRequest", "Topic"]);
    let top = &request.structs[0];
    assert_eq!(top.fields.len(), 3);
    assert_eq!((top.fields[0].tag, top.fields[0].default), (Some(0), Default::Null));
    assert_eq!(top.fields[2].name, "RackId");
    assert_eq!(request.structs[1].fields[0].versions, Span { min: 0, max: 12 });
    assert_eq!(request.structs[1].fields[1].ty, Type::Array(Box::new(Type::Int32)));
    assert!(request.structs[1].in_array && request.structs[1].borrows);
    let pair = &response.structs[1];
    assert!(!pair.borrows && !pair.in_array);
    assert_eq!(pair.active, Span { min: 4, max: 18 });
}

#[test]
fn errors_tell_the_line() {
    let cases = [
        ("nonsense\n", 1, "expected `api`"),
        ("request 0 flexible none\n", 1, "no `api` line"),
        ("record A 0+ flexible none\n", 1, "have an end"),
        ("record A 3-1 flexible none\n", 1, "is empty"),
        ("record A 0 flexible 0-1\n", 1, "no end"),
        ("record A 0\n", 1, "expected versions"),
        ("record A 0 flexible none\n\n  B int32\n", 3, "expected name, type"),
        ("record A 0 flexible none\n  B int33 0+\n", 2, "no type is called"),
        ("record A 0 flexible none\n  b int32 0+\n", 2, "capital"),
        ("record A 0 flexible none\n  B int32 0+ odd\n", 2, "not understood: odd"),
        ("record A 0 flexible none\n  B int32 x\n", 2, "not a number"),
        ("record A 0 flexible none\n  B int32 0+\n      C int32 0+\n", 3, "nothing is open"),
        ("record A 0 flexible none\n  B int32 0+\n    C int32 0+\n", 3, "nothing is open"),
        ("record A 0 flexible none\n  B int32 0+\n  B int32 0+\n", 3, "defined twice"),
        ("record A 0 flexible none\n  B Other 0+\n", 2, "Other is not defined"),
        ("record A 0 flexible none\n  struct B\n    C int8 0+\n", 2, "never used"),
        ("record A 0 flexible none\n  B int32 1+\n", 2, "in no version"),
        ("record A 0 flexible none\n  B int32 0+ nullable 0+\n", 2, "cannot be null"),
        (
            "record A 0-1 flexible none\n  B C 0+ nullable 1+\n    D int8 0+\n",
            2,
            "in all its versions or in none",
        ),
        ("record A 0 flexible none\n  B string 0+ default null\n", 2, "not nullable"),
        ("record A 0 flexible none\n  B int8 0+ default 128\n", 2, "is no int8"),
        ("record A 0 flexible none\n  B int8 0+ default true\n", 2, "no bool"),
        ("record A 0 flexible none\n  B int8 0+ tag 0\n", 2, "not flexible"),
        ("record A 0 flexible 0+\n  B records 0+ tag 0\n", 2, "records cannot"),
        ("record A 0 flexible 0+\n  B int8 0+ tag 0\n  C int8 0+ tag 0\n", 3, "twice"),
        ("record A 0 flexible 0+\n  B int8 0+ tag 1\n", 1, "gap"),
        ("# only a comment\n", 1, "no message"),
    ];
    for (text, line, reason) in cases {
        let told = read(text).unwrap_err();
        assert!(told.starts_with(&format!("protocol/spec/x.msg:{line}: ")), "{text}: {told}");
        assert!(told.contains(reason), "{text}: {told}");
    }
}

#[test]
fn the_example_in_the_readme_is_understood() {
    let readme = include_str!("../../../../protocol/spec/README.md");
    let messages = read(readme.split("```").nth(1).unwrap()).unwrap();
    let response = messages.last().unwrap();
    let names: Vec<&str> = response.structs.iter().map(|found| &*found.name).collect();
    assert_eq!(names, ["FindCoordinatorResponse", "Coordinator", "Endpoint"]);
    assert!(response.structs[2].in_array && response.structs[2].borrows);
}
