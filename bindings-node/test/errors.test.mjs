import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import {
  AbortableError, Broker, Consumer, FatalError, OttlaError, Producer, RetriableError, UsageError
} from 'ottla'
import { endsWith, startPlace } from './place.mjs'

let place
before(async () => { place = await startPlace() })
after(() => place.stop())

test('an unknown option is refused, with the nearest name', () => {
  assert.throws(() => new Producer({ bootstrapServers: 'localhost:9092', lingr: 5 }), (error) => {
    assert.ok(error instanceof UsageError)
    assert.ok(error instanceof OttlaError)
    assert.ok(error instanceof Error)
    assert.equal(error.name, 'UsageError')
    assert.equal(error.code, 'InvalidOption')
    assert.equal(error.retriable, false)
    assert.match(error.message, /lingr/)
    assert.match(error.hint, /linger/)
    assert.match(error.stack, /errors\.test\.mjs/)
    return true
  })
  assert.throws(() => new Consumer({ bootstrapServers: 'x:1', gruop: 'g' }), /group/)
})

test('an option of the wrong type is refused, with what it takes', () => {
  const given = (options) => () => new Producer({ bootstrapServers: 'localhost:9092', ...options })
  assert.throws(given({ linger: 'soon' }), /milliseconds/)
  assert.throws(given({ linger: NaN }), { code: 'InvalidOption' })
  assert.throws(given({ linger: 1.5 }), { code: 'InvalidOption' })
  assert.throws(given({ linger: {} }), { code: 'InvalidOption' })
  assert.throws(given({ compression: 'zip' }), /lz4/)
  assert.throws(given({ idempotence: 'perhaps' }), /true or false/)
  for (const options of [undefined, null, 'localhost:9092', 5, []]) {
    assert.throws(() => new Producer(options), { code: 'InvalidOption' })
  }
  given({ linger: undefined, acks: null })()
})

test('options of a call that are no object are refused, and nothing is done', async (t) => {
  const topic = await place.topic()
  const [producer, consumer] = [place.producer(t), place.consumer(t, topic)]
  for (const bad of [500, 'key', null, false]) {
    const calls = [
      () => producer.send(topic, 'v', bad), () => producer.sendMany(topic, ['v'], bad),
      () => producer.drain(bad), () => producer.flush(bad), () => producer.close(bad),
      () => consumer.poll(bad), () => consumer.commit(undefined, bad),
      () => consumer.committed([], bad), () => consumer.close(bad),
      () => place.broker.createTopic(`${topic}-other`, bad), () => place.broker.stop(bad)
    ]
    for (const call of calls) {
      await assert.rejects(call, { name: 'TypeError', message: /given as an object/ })
    }
    assert.throws(() => producer.push(topic, 'v', bad), /given as an object/)
    assert.throws(() => consumer.batches(bad), /given as an object/)
  }
  assert.equal((await producer.send(topic, 'first')).offset, 0n)
  assert.equal((await consumer.poll()).value.toString(), 'first')
})

test('a misspelt option of a call is refused, and nothing is done', async (t) => {
  const topic = await place.topic()
  const [producer, consumer] = [place.producer(t), place.consumer(t, topic)]
  const bad = { timout: 5 }
  const calls = [
    () => producer.send(topic, 'v', bad), () => producer.send(topic, 'v', { value: 'v' }),
    () => producer.sendMany(topic, ['v'], bad), () => producer.drain(bad), () => producer.flush(bad),
    () => producer.close(bad), () => consumer.poll(bad), () => consumer.commit(undefined, bad),
    () => consumer.committed([], bad), () => consumer.committedWithMetadata([], bad),
    () => consumer.beginningOffsets([], bad), () => consumer.endOffsets([], bad),
    () => consumer.offsetsForTimes([], bad), () => consumer.seekBeforeEnd({ topic, partition: 0 }, 1, bad),
    () => consumer.close(bad), () => place.broker.createTopic(`${topic}-other`, bad),
    () => place.broker.stop(bad)
  ]
  for (const call of calls) {
    await assert.rejects(call, { name: 'TypeError', message: /no `(timout|value)` here, but [a-z]/ }, String(call))
  }
  assert.throws(() => producer.push(topic, 'v', { kye: 'k' }), /no `kye` here, but key, headers/)
  assert.throws(() => consumer.batches({ maxRecord: 5 }), /no `maxRecord` here, but maxRecords/)
  const report = await producer.sendMany(topic, [{ val: 'v' }, { key: 'k', value: 'first', topic: undefined }])
  assert.match(report.errors.get(0).message, /no `val` here, but/)
  assert.equal(report.errors.size, 1)
  assert.equal((await consumer.poll()).value.toString(), 'first')
})

test('options have short, long, dotted and camel-case names', () => {
  for (const name of ['linger', 'lingerMs', 'linger.ms', 'linger_ms']) {
    assert.ok(new Producer({ 'bootstrap.servers': ['a:1', 'b:2'], [name]: 5 }))
  }
})

test('a bad address is refused', () => {
  for (const bootstrapServers of ['nohost', 'host:', ':9092', 'host:99999', '', 'a b:1']) {
    const made = () => new Producer({ bootstrapServers })
    assert.throws(made, { code: 'InvalidOption' }, bootstrapServers)
  }
  assert.throws(() => new Producer({}), /bootstrap/)
})

/**
 * Tells a story with short times, or with times so many times as long: a slow machine may not come to what it shall
 * tell before they are over.
 */
async function givenTime (story) {
  for (const times of [1, 4, 16]) {
    try {
      return await story(times)
    } catch (error) {
      if (!(error instanceof assert.AssertionError)) throw error
    }
  }
  return story(64)
}

test('nobody listening is told, and does not hang', async (t) => {
  await givenTime(async (times) => {
    const limits = { requestTimeout: 200 * times, deliveryTimeout: 500 * times, maxBlock: 500 * times }
    const producer = new Producer({ bootstrapServers: '127.0.0.1:1', linger: 0, ...limits })
    endsWith(t, producer, 0)
    await assert.rejects(producer.send('t', 'v'), (error) => {
      assert.ok(error instanceof RetriableError)
      assert.equal(error.maybeStored, false)
      assert.match(error.message, /127\.0\.0\.1:1/)
      return true
    })
  })
  const consumer = new Consumer({ bootstrapServers: '127.0.0.1:1', group: 'g', topics: ['t'] })
  endsWith(t, consumer, 0)
  await assert.rejects(async () => {
    for (let polls = 0; polls < 30; polls++) await consumer.poll({ timeout: 1000 })
  }, RetriableError)
})

test('an unknown topic is told', async (t) => {
  const options = { allowAutoCreateTopics: false, deliveryTimeout: 60_000 }
  await givenTime(async (times) => {
    const producer = place.producer(t, { ...options, maxBlock: 500 * times })
    await assert.rejects(producer.send('not-there', 'v'), (error) => {
      assert.equal(error.code, 'UnknownTopic')
      assert.equal(error.topic, 'not-there')
      assert.equal(error.kafkaCode === undefined || error.kafkaCode === 3, true)
      return true
    })
    await assert.rejects(producer.send('no topic', 'v'), { code: 'InvalidTopic' })
  })
})

test('a record that is too large is refused at once', async (t) => {
  const producer = place.producer(t)
  await assert.rejects(producer.send('t', Buffer.alloc(2_000_000)), (error) => {
    assert.equal(error.code, 'RecordTooLarge')
    assert.ok(error instanceof UsageError)
    assert.equal(error.maybeStored, false)
    return true
  })
  assert.throws(() => producer.push('t', Buffer.alloc(2_000_000)), { code: 'RecordTooLarge' })
})

test("a broker's refusal has Kafka's number", async (t) => {
  const topic = await place.topic()
  const producer = place.producer(t)
  const timestamp = Date.now() + 10 * 24 * 3600 * 1000
  await assert.rejects(producer.send(topic, 'v', { timestamp }), (error) => {
    assert.equal(error.code, 'InvalidTimestamp')
    assert.equal(error.kafkaCode, 32)
    assert.equal(error.outcome, 'Rejected')
    assert.equal(error.topic, topic)
    assert.equal(error.partition, 0)
    return true
  })
})

test('each class of errors is one to catch', () => {
  for (const kind of [RetriableError, AbortableError, FatalError, UsageError]) {
    assert.equal(Object.getPrototypeOf(kind), OttlaError)
  }
})

test('an embedded broker tells what is wrong with its options', async () => {
  await assert.rejects(Broker.start({ numPartitons: 3 }), /num\.partitions/)
  await assert.rejects(Broker.start({ numPartitions: 'three' }), { code: 'InvalidOption' })
  await assert.rejects(Broker.start({ listen: place.address }), { code: 'Broker' })
  await assert.rejects(Broker.start({ listen: 5 }), { code: 'InvalidOption' })
  await assert.rejects(place.broker.createTopic('no topic'), OttlaError)
  await assert.rejects(place.broker.createTopic('t', { partitions: 0 }), TypeError)
})
