//! The first program: an embedded broker, ten records sent, a group that reads and commits them.
#![allow(clippy::print_stdout, reason = "it shows what it does")]

use std::error::Error;
use std::time::Duration;

use ottla::{Commit, Consumer, Options, Producer, Record};
use ottla_broker::{Broker, BrokerConfig};

const TEN_SECONDS: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let broker = Broker::start(BrokerConfig::new())?;
    broker.create_topic("orders", 3)?;
    let options = Options::new().set("bootstrap.servers", &broker.bootstrap())?;

    let producer = Producer::new(&options)?;
    for number in 0..9 {
        let value = format!("order {number}");
        producer.send(&Record::to("orders").key("customer").value(&value))?;
    }
    let sent = producer.send(&Record::to("orders").key("customer").value("order 9"))?;
    let delivery = sent.wait(TEN_SECONDS)?;
    println!("order 9: partition {}, offset {}", delivery.partition, delivery.offset);
    producer.close(TEN_SECONDS)?;

    let options = options.set("group", "billing")?.set("start", "earliest")?;
    let consumer = Consumer::new(&options.set("auto_commit", "false")?)?;
    consumer.subscribe(&["orders"])?;
    let mut read = 0;
    while read < 10 {
        let record = consumer.poll(TEN_SECONDS)?.ok_or("no record came within ten seconds")?;
        let value = String::from_utf8_lossy(record.value().unwrap_or_default());
        println!("read {value} at offset {}", record.offset());
        consumer.commit(Commit::Record(&record), TEN_SECONDS)?;
        read += 1;
    }
    consumer.close(TEN_SECONDS)?;
    broker.stop(TEN_SECONDS)?;
    println!("10 records sent, {read} read and committed");
    Ok(())
}
