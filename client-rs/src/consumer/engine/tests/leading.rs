//! A member that leads its group, and shares out.

use super::script::Script;

fn leading(rack: &str, members: &[(&'static str, &'static str)]) -> Script {
    let mut script = Script::new(&[("client.rack", rack)]);
    script.members = members.to_vec();
    script.racks = vec!["west", "west", "east", "east"];
    script.subscribe();
    script
}

#[test]
fn a_leader_in_a_rack_shares_out_by_racks_and_anew_when_they_change() {
    let mut script = leading("east", &[("m", "east"), ("n", "west")]);
    assert_eq!(script.shared, ["m:[2, 3]", "n:[0, 1]"]);
    script.stand(&["west", "west", "east", "east"]);
    assert_eq!(script.generation, 1, "nothing has changed");
    script.stand(&["west", "east", "west", "east"]);
    assert_eq!(
        (script.generation, script.shared),
        (2, ["m:[1, 3]", "n:[0, 2]"].map(String::from).into())
    );
}

#[test]
fn a_leader_that_stands_nowhere_minds_the_racks_of_others_but_no_change() {
    let mut script = leading("", &[("a", "east"), ("m", ""), ("n", "west")]);
    assert_eq!(script.shared, ["a:[2, 3]", "m:[0]", "n:[1]"]);
    script.stand(&["west", "east", "west", "east"]);
    assert_eq!(script.generation, 1);
}

#[test]
fn a_broker_that_is_away_has_not_left_its_rack() {
    let mut script = leading("east", &[("m", "east"), ("n", "west")]);
    script.stand(&["west", "west"]);
    script.stand(&["west", "west", "east", "east"]);
    assert_eq!(script.generation, 1);
}
