import assert from 'node:assert/strict'
import { getEventListeners } from 'node:events'
import { after, before, test } from 'node:test'
import { createRequire } from 'node:module'
import { inspect } from 'node:util'
import { Batch, Broker, Consumer, ConsumerRecord } from 'ottla'
import { readRecords, readValues, startPlace, until } from './place.mjs'

let place
before(async () => { place = await startPlace() })
after(() => place.stop())

/** A topic with values v0, v1, ... in each of its partitions. */
async function filled (t, count, partitions = 1) {
  const topic = await place.topic(partitions)
  const producer = place.producer(t)
  for (let partition = 0; partition < partitions; partition++) {
    const rows = Array.from({ length: count }, (_, at) => ({ key: 'k', value: `v${at}`, partition }))
    assert.equal((await producer.sendMany(topic, rows)).ok, true)
  }
  return topic
}

test('a loop gives every record in order, and ends when the consumer is closed', async (t) => {
  const topic = await filled(t, 3000)
  const consumer = place.consumer(t, topic)
  let at = 0
  let closed
  for await (const record of consumer) {
    assert.ok(record instanceof ConsumerRecord)
    assert.equal(record.topic, topic)
    assert.equal(record.partition, 0)
    assert.equal(record.offset, BigInt(at))
    assert.equal(String(record.value), `v${at}`)
    if (++at === 3000) closed = consumer.close()
  }
  await closed
  assert.equal(at, 3000)
})

test('a loop that is left goes on with the next record', async (t) => {
  const topic = await filled(t, 10)
  const consumer = place.consumer(t, topic)
  const seen = []
  for await (const record of consumer) {
    seen.push(String(record.value))
    if (seen.length === 3) break
  }
  for await (const record of consumer) {
    seen.push(String(record.value))
    if (seen.length === 10) break
  }
  assert.deepEqual(seen, Array.from({ length: 10 }, (_, at) => `v${at}`))
})

test('a record shows, copies and writes itself as JSON', async (t) => {
  const topic = await filled(t, 1)
  const [record] = await readRecords(place.consumer(t, topic), 1)
  assert.match(inspect(record), new RegExp(`ConsumerRecord \\{ topic: '${topic}', partition: 0, offset: 0n`.replaceAll(' ', '\\s+')))
  const plain = JSON.parse(JSON.stringify(record))
  assert.equal(plain.offset, '0')
  assert.equal(plain.timestamp, record.timestamp)
  assert.equal(record.exactTimestamp, BigInt(record.timestamp))
})

test('batches have columns, and no more records than was asked for', async (t) => {
  const topic = await filled(t, 1000)
  const consumer = place.consumer(t, topic)
  const sizes = []
  let at = 0
  for await (const batch of consumer.batches({ maxRecords: 300 })) {
    assert.ok(batch instanceof Batch)
    sizes.push(batch.length)
    assert.equal(batch.baseOffset, BigInt(at))
    assert.equal(batch.lastOffset, BigInt(at + batch.length - 1))
    const { offsets, timestamps, keys, values } = batch.toColumns()
    assert.deepEqual([...offsets], Array.from(values, (_, row) => BigInt(at + row)))
    assert.equal(timestamps.length, batch.length)
    assert.equal(String(keys[0]), 'k')
    assert.deepEqual(values.map(String), Array.from(values, (_, row) => `v${at + row}`))
    assert.deepEqual(Array.from(batch, (record) => record.offset), [...offsets])
    assert.equal(String(batch.get(1).value), `v${at + 1}`)
    assert.equal(batch.get(batch.length), undefined)
    assert.equal(batch.get(-1), undefined)
    assert.ok(batch.highWatermark >= batch.lastOffset)
    at += batch.length
    if (at === 1000) break
  }
  assert.ok(sizes.every((size) => size <= 300), String(sizes))
  assert.throws(() => consumer.batches({ maxRecords: 0 }), TypeError)
})

test('large values come whole, and stay good when the consumer is gone', async (t) => {
  const topic = await place.topic()
  const producer = place.producer(t)
  const values = Array.from({ length: 20 }, (_, at) => Buffer.alloc(100_000 + at, at))
  for (const value of values) await producer.send(topic, value, { key: 'k' })
  const consumer = place.consumer(t, topic)
  const records = await readRecords(consumer, values.length)
  await consumer.close()
  globalThis.gc?.()
  records.forEach((record, at) => assert.ok(record.value.equals(values[at]), `value ${at}`))
})

test('batches of every codec read like others', async (t) => {
  const levels = { gzip: { compressionGzipLevel: 9 }, zstd: { compressionZstdLevel: -3 } }
  for (const compression of ['none', 'gzip', 'snappy', 'lz4', 'zstd']) {
    const topic = await place.topic()
    const producer = place.producer(t, { compression, ...levels[compression] })
    const rows = Array.from({ length: 500 }, (_, at) => ({ value: `line ${at} `.repeat(10), headers: { n: String(at) } }))
    assert.equal((await producer.sendMany(topic, rows)).ok, true)
    const records = await readRecords(place.consumer(t, topic), rows.length)
    records.forEach((record, at) => {
      assert.equal(String(record.value), rows[at].value, compression)
      assert.equal(String(record.headers.get('n')), String(at))
    })
  }
})

test('a poll gives null when its time is over, and waits for a record till then', async (t) => {
  const topic = await place.topic()
  const consumer = place.consumer(t, topic)
  assert.equal(await consumer.poll({ timeout: 0 }), null)
  assert.equal(await consumer.poll({ timeout: 100 }), null)
  const waiting = consumer.poll()
  await place.producer(t).send(topic, 'v')
  assert.equal(String((await waiting).value), 'v')
  await assert.rejects(consumer.poll({ timeout: -1 }), TypeError)
})

test('polls that wait are served in their order', async (t) => {
  const topic = await place.topic()
  const consumer = place.consumer(t, topic)
  const waiting = [consumer.poll(), consumer.poll(), consumer.poll({ timeout: 20_000 })]
  const producer = place.producer(t)
  for (const value of ['a', 'b', 'c']) await producer.send(topic, value)
  const values = (await Promise.all(waiting)).map((record) => String(record.value))
  assert.deepEqual(values, ['a', 'b', 'c'])
})

test('no more than 1,024 polls wait at once, and what one more is told disturbs none of them', async (t) => {
  const topic = await place.topic()
  const consumer = place.consumer(t, topic)
  const abort = new AbortController()
  const waiting = [consumer.poll({ signal: abort.signal })]
  while (waiting.length < 1024) waiting.push(consumer.poll())
  const refusal = { name: 'UsageError', code: 'InvalidState', message: /1024 polls .* wait already/ }
  await assert.rejects(consumer.poll({ timeout: 10 }), refusal)
  await assert.rejects(consumer[Symbol.asyncIterator]().next(), refusal)
  // One that is gone makes room for one more.
  abort.abort()
  await assert.rejects(waiting.shift(), { name: 'AbortError' })
  waiting.push(consumer.poll())
  await assert.rejects(consumer.poll({ timeout: 10 }), refusal)
  const rows = waiting.map((_, at) => `v${at}`)
  assert.equal((await place.producer(t).sendMany(topic, rows)).ok, true)
  const values = (await Promise.all(waiting)).map((record) => String(record.value))
  assert.deepEqual(values, rows)
  assert.equal(await consumer.poll({ timeout: 0 }), null)
})

test('a time that is none is refused by a close, and closes nothing', async (t) => {
  const topic = await place.topic()
  const [consumer, producer, own] = [place.consumer(t, topic), place.producer(t), await Broker.start()]
  for (const timeout of [-1, NaN, '5']) {
    for (const end of [() => consumer.close({ timeout }), () => producer.close({ timeout }), () => own.stop({ timeout })]) {
      await assert.rejects(end(), TypeError)
    }
  }
  await producer.send(topic, 'v')
  assert.deepEqual(await readValues(consumer, 1), ['v'])
  await own.createTopic('t')
  await own.stop()
})

test('a close that is given no time has that of the calls, and one that is given a time has it', async (t) => {
  const { NativeConsumer } = createRequire(createRequire(import.meta.url).resolve('ottla'))('./lib/native.js')
  const closes = t.mock.method(NativeConsumer.prototype, 'close')
  const topic = await place.topic()
  await place.consumer(t, topic).close()
  await place.consumer(t, topic, { apiTimeout: 12_345 }).close()
  await place.consumer(t, topic, { apiTimeout: 12_345 }).close({ timeout: 6789 })
  assert.deepEqual(closes.mock.calls.map((call) => call.arguments), [[60_000], [12_345], [6789]])
})

test('a signal ends a wait, and no record is lost by it', async (t) => {
  const topic = await place.topic()
  const consumer = place.consumer(t, topic)
  const abort = new AbortController()
  const reason = new Error('enough')
  const waits = [
    consumer.poll({ signal: abort.signal }),
    consumer.batches({ signal: abort.signal }).next()
  ]
  abort.abort(reason)
  for (const outcome of await Promise.allSettled(waits)) assert.equal(outcome.reason, reason)
  await place.producer(t).send(topic, 'v')
  assert.deepEqual(await readValues(consumer, 1), ['v'])
})

test('a wait that is over leaves nothing with its signal', async (t) => {
  const topic = await filled(t, 2)
  const consumer = place.consumer(t, topic)
  const { signal } = new AbortController()
  const waits = [consumer.poll({ signal }), consumer.batches({ signal }).next()]
  assert.equal(getEventListeners(signal, 'abort').length, 2)
  await Promise.all(waits)
  assert.equal(await consumer.poll({ signal, timeout: 1 }), null)
  await consumer.commit(undefined, { signal })
  const closed = assert.rejects(consumer.poll({ signal }), { code: 'Closed' })
  await consumer.close()
  await closed
  assert.equal(getEventListeners(signal, 'abort').length, 0)
})

test('a committed record is where the next member goes on', async (t) => {
  const topic = await filled(t, 10)
  const group = 'committed'
  const first = place.consumer(t, topic, { group, autoCommit: false })
  const records = await readRecords(first, 4)
  await records[1].commit()
  assert.deepEqual(await first.committed([{ topic, partition: 0 }]), [2n])
  await records[2].commit()
  await first.close()
  const second = place.consumer(t, topic, { group, autoCommit: false })
  assert.deepEqual(await readValues(second, 1), ['v3'])
  await second.commit()
  assert.deepEqual(await second.committed([{ topic, partition: 0 }]), [4n], 'no more than was given')
  for await (const batch of second.batches({ maxRecords: 2 })) {
    assert.equal(batch.baseOffset, 4n)
    await batch.commit()
    break
  }
  assert.deepEqual(await second.committed([{ topic, partition: 0 }]), [6n])
  await second.commit([{ topic, partition: 0, offset: 1n }])
  assert.deepEqual(await second.committed([{ topic, partition: 0 }]), [1n])
  second.commitSoon({ topic, partition: 0, offset: 8 })
  await second.close()
  const third = place.consumer(t, topic, { group, autoCommit: false })
  assert.deepEqual(await readValues(third, 2), ['v8', 'v9'])
})

test('nothing committed is null', async (t) => {
  const topic = await filled(t, 1)
  const consumer = place.consumer(t, topic, { autoCommit: false })
  await readRecords(consumer, 1)
  assert.deepEqual(await consumer.committed([{ topic, partition: 0 }]), [null])
})

test('automatic commits take finished records alone', async (t) => {
  const topic = await filled(t, 10)
  const group = 'automatic'
  const first = place.consumer(t, topic, { group })
  await assert.rejects(async () => {
    let count = 0
    for await (const record of first) {
      assert.ok(record)
      if (++count === 4) throw new Error('the handler fails on the fourth')
    }
  }, /fourth/)
  await first.close()
  const second = place.consumer(t, topic, { group })
  assert.deepEqual(await readValues(second, 1), ['v3'], 'it was not finished')
})

test('commitSoon reaches the group by and by', async (t) => {
  const topic = await filled(t, 100)
  const group = 'soon'
  const first = place.consumer(t, topic, { group, autoCommit: false })
  for (const record of await readRecords(first, 50)) first.commitSoon(record)
  await first.close()
  const second = place.consumer(t, topic, { group, autoCommit: false })
  assert.deepEqual(await readValues(second, 1), ['v50'])
})

test('seek moves the position, also back over records of a batch under way', async (t) => {
  const topic = await filled(t, 100)
  const consumer = place.consumer(t, topic)
  const place0 = { topic, partition: 0 }
  assert.deepEqual(await readValues(consumer, 5), ['v0', 'v1', 'v2', 'v3', 'v4'])
  assert.equal(consumer.position(place0), 5n)
  for (let turn = 0; turn < 20; turn++) {
    consumer.seek(place0, 2)
    assert.deepEqual(await readValues(consumer, 3), ['v2', 'v3', 'v4'])
  }
  consumer.seek({ ...place0, offset: 98n })
  assert.deepEqual(await readValues(consumer, 2), ['v98', 'v99'])
  assert.equal(consumer.position(place0), 100n)
  assert.throws(() => consumer.seek(place0, -1), TypeError)
  assert.throws(() => consumer.seek(place0, '5'), TypeError)
  assert.throws(() => consumer.seek({ topic: 'other', partition: 0 }, 0), { code: 'NotAssigned' })
})

for (const [what, leave] of [
  ['an unsubscribe', (consumer) => consumer.unsubscribe()],
  ['a subscribe to another topic', (consumer) => consumer.subscribe('no-such-topic')],
  ['a subscribe by another pattern', (consumer) => consumer.subscribePattern('no-such-.*')]
]) {
  test(`from ${what} on nothing is given of what was left, also of a batch under way`, async (t) => {
    const topic = await filled(t, 100)
    const consumer = place.consumer(t, topic, { autoCommit: false })
    // As if all of it were done within one millisecond.
    const clock = t.mock.method(Date, 'now', () => 1)
    assert.deepEqual(await readValues(consumer, 5), ['v0', 'v1', 'v2', 'v3', 'v4'])
    leave(consumer)
    assert.equal(await consumer.poll({ timeout: 0 }), null)
    consumer.unsubscribe()
    consumer.subscribe(topic)
    clock.mock.restore()
    assert.deepEqual(await readValues(consumer, 100), Array.from({ length: 100 }, (_, at) => `v${at}`), 'nothing was committed')
  })
}

test('a list of records is not one of offsets, and nothing of it is committed', async (t) => {
  const topic = await filled(t, 3)
  const consumer = place.consumer(t, topic, { autoCommit: false })
  const records = await readRecords(consumer, 3)
  const refusal = { code: 'InvalidArgument', message: /a list is one of offsets/ }
  await assert.rejects(consumer.commit(records), refusal)
  await assert.rejects(consumer.commit([{ topic, partition: 0, offset: 1 }, records[1]]), refusal)
  assert.throws(() => consumer.commitSoon(records), refusal)
  assert.deepEqual(await consumer.committed([{ topic, partition: 0 }]), [null])
})

test('a paused partition gives nothing until it is resumed, and loses nothing', async (t) => {
  const topic = await filled(t, 50, 2)
  const consumer = place.consumer(t, topic)
  const first = (await readRecords(consumer, 1))[0]
  const paused = { topic, partition: first.partition }
  consumer.pause([paused])
  const others = await readRecords(consumer, 50)
  assert.ok(others.every(({ partition }) => partition !== paused.partition))
  assert.equal(await consumer.poll({ timeout: 200 }), null)
  assert.equal(consumer.position(paused), 1n)
  consumer.resume([paused])
  const rest = await readRecords(consumer, 49)
  rest.forEach(({ partition, offset }, at) => {
    assert.equal(partition, paused.partition)
    assert.equal(offset, BigInt(at + 1))
  })
})

test('two members of a group share the partitions, and one takes all when the other leaves', async (t) => {
  const topic = await place.topic(4)
  const producer = place.producer(t)
  const options = { heartbeatInterval: 50 }
  const [one, two] = [place.consumer(t, topic, options), place.consumer(t, topic, options)]
  const seen = new Map()
  const share = async (consumer) => {
    for await (const record of consumer) {
      seen.set(`${record.partition}/${record.offset}`, consumer)
      record.commit().catch(() => {})
    }
  }
  const loops = [share(one), share(two)]
  await until('each member has two partitions', () => [one, two].every((member) => member.assignment().length === 2))
  const rows = Array.from({ length: 400 }, (_, at) => ({ value: 'v', partition: at % 4 }))
  assert.equal((await producer.sendMany(topic, rows)).ok, true)
  await until('400 records were read', () => seen.size >= 400)
  assert.deepEqual(new Set(seen.values()), new Set([one, two]))
  await one.close()
  await loops[0]
  await until('the one that stays has all partitions', () => two.assignment().length === 4)
  assert.equal((await producer.sendMany(topic, rows)).ok, true)
  await until('800 records were read', () => seen.size >= 800)
  await two.close()
  await loops[1]
})

test('a loop over records that are always ready lets timers have their turn', async (t) => {
  const topic = await filled(t, 2000)
  const consumer = place.consumer(t, topic)
  await readRecords(consumer, 1)
  let count = 1
  let turns = 0
  const timer = setInterval(() => { turns++ }, 1)
  t.after(() => clearInterval(timer))
  for await (const record of consumer) {
    assert.ok(record)
    // A handler that never waits, and is never through before a timer is due.
    const start = performance.now()
    while (performance.now() - start < 2);
    if (++count === 2000 || turns > 0) break
  }
  assert.ok(turns > 0, 'no timer ran')
})

test('after close every call says so, and a second close does nothing', async (t) => {
  const topic = await filled(t, 3)
  const consumer = place.consumer(t, topic)
  const [record] = await readRecords(consumer, 1)
  const waiting = place.consumer(t, await place.topic())
  const wait = assert.rejects(waiting.poll(), { code: 'Closed' })
  const loop = waiting.batches().next()
  await Promise.all([waiting.close(), consumer.close(), consumer.close()])
  await wait
  assert.equal((await loop).done, true)
  await assert.rejects(consumer.poll(), { code: 'Closed' })
  assert.throws(() => consumer[Symbol.asyncIterator](), { code: 'Closed' })
  assert.throws(() => consumer.batches(), { code: 'Closed' })
  await assert.rejects(record.commit(), { code: 'Closed' })
  assert.throws(() => consumer.commitSoon(record), { code: 'Closed' })
  assert.throws(() => consumer.subscribe([topic]), { code: 'Closed' })
  assert.throws(() => consumer.seek({ topic, partition: 0 }, 0), { code: 'Closed' })
  assert.equal(String(record.value), 'v0', 'what was read stays good')
})

test('a record of another consumer is not committed', async (t) => {
  const topic = await filled(t, 1)
  const [one, two] = [place.consumer(t, topic), place.consumer(t, topic, { group: 'another' })]
  const [record] = await readRecords(one, 1)
  await assert.rejects(two.commit(record), { code: 'InvalidArgument' })
  await assert.rejects(two.commit({ topic }), TypeError)
  await assert.rejects(two.commit(5), TypeError)
})

test('a consumer without a group says so at its first use', () => {
  assert.throws(() => new Consumer({ bootstrapServers: place.address, topics: ['t'] }), { code: 'InvalidGroup' })
  assert.throws(() => new Consumer({ bootstrapServers: place.address, group: 'g', topics: [''] }), { code: 'InvalidTopic' })
  assert.throws(() => new Consumer({ bootstrapServers: place.address, group: 'g', topics: 5 }), TypeError)
})

test('records that are finished in any order do not come again', async (t) => {
  const topic = await filled(t, 10)
  const options = { acknowledgement: 'explicit', autoCommit: false }
  const consumer = place.consumer(t, topic, options)
  const records = await readRecords(consumer, 10)
  for (const offset of [7, 2, 3]) consumer.acknowledge(records[offset])
  await consumer.commit()
  await consumer.close()
  assert.throws(() => consumer.acknowledge(records[0]), { code: 'Closed' })
  const next = place.consumer(t, topic, options)
  const left = await readRecords(next, 7)
  assert.deepEqual(left.map((record) => Number(record.offset)), [0, 1, 4, 5, 6, 8, 9])
})

test('a batch is acknowledged as a whole, and what cannot be is told', async (t) => {
  const topic = await filled(t, 10)
  const consumer = place.consumer(t, topic, { acknowledgement: 'explicit', autoCommit: false })
  for await (const batch of consumer.batches({ maxRecords: 4 })) {
    if (batch.baseOffset > 0n) consumer.acknowledge(batch)
    if (batch.lastOffset === 9n) break
  }
  await consumer.commit()
  await consumer.close()
  const implicit = place.consumer(t, topic)
  const [first] = await readRecords(implicit, 1)
  assert.equal(first.offset, 0n)
  assert.throws(() => implicit.acknowledge(first), { code: 'InvalidState' })
  assert.throws(() => implicit.acknowledge({ offset: 0n }), { code: 'InvalidArgument' })
  await implicit.close()
  const other = place.consumer(t, topic, { acknowledgement: 'explicit' })
  assert.throws(() => other.acknowledge(first), { code: 'InvalidArgument' })
})
