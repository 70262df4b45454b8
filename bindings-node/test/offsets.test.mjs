import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { Consumer } from 'ottla'
import { endsWith, readRecords, startPlace } from './place.mjs'

let place
before(async () => { place = await startPlace() })
after(() => place.stop())

const TIMES = 1_000_000

/** A topic of two partitions: ten records in the first, one a second from 1,000 s on, none in the other. */
async function filled (t) {
  const topic = await place.topic(2)
  await fill(t, topic, 10)
  return topic
}

async function fill (t, topic, count) {
  const rows = Array.from({ length: count }, (_, at) => ({
    value: `v${at}`, partition: 0, timestamp: TIMES + at * 1000
  }))
  assert.equal((await place.producer(t).sendMany(topic, rows)).ok, true)
}

/** A consumer that has not subscribed to anything; without a group unless one is given. */
function reader (t, options) {
  const consumer = new Consumer({ bootstrapServers: place.address, start: 'earliest', ...options })
  endsWith(t, consumer)
  return consumer
}

async function offsetsRead (consumer, count) {
  return (await readRecords(consumer, count)).map((record) => record.offset)
}

test('without a group, assigned partitions are read from where told', async (t) => {
  const topic = await filled(t)
  const consumer = reader(t)
  const first = { topic, partition: 0 }
  consumer.assign([first])
  assert.deepEqual(consumer.assignment(), [first])
  assert.deepEqual(await offsetsRead(consumer, 3), [0n, 1n, 2n])
  consumer.seek(first, 8)
  assert.deepEqual(await offsetsRead(consumer, 2), [8n, 9n])
  await assert.rejects(consumer.commit(), { code: 'InvalidGroup' })
  await assert.rejects(consumer.committedWithMetadata([first]), { code: 'InvalidGroup' })
  assert.throws(() => consumer.subscribe(topic), { code: 'InvalidGroup' })
  consumer.assign([])
  assert.deepEqual(consumer.assignment(), [])
})

test('with a group, assigned partitions are read from what it committed', async (t) => {
  const topic = await filled(t)
  const group = `group-of-${topic}`
  const one = reader(t, { group })
  one.assign([{ topic, partition: 0 }])
  await readRecords(one, 4)
  await one.commit()
  assert.throws(() => one.subscribe(topic), { code: 'InvalidState' })
  await one.close()
  const next = reader(t, { group })
  next.assign([{ topic, partition: 0 }])
  assert.deepEqual(await offsetsRead(next, 1), [4n])
})

test('what is no longer assigned is not given out, also of a batch under way', async (t) => {
  const [topic, other] = [await filled(t), await filled(t)]
  const consumer = reader(t)
  consumer.assign([{ topic, partition: 0 }])
  for (let turn = 0; turn < 20; turn++) {
    await readRecords(consumer, 1)
    consumer.assign([{ topic: other, partition: 0 }])
    assert.equal((await readRecords(consumer, 1))[0].topic, other)
    consumer.assign([{ topic, partition: 0 }])
    assert.equal((await readRecords(consumer, 1))[0].topic, topic)
  }
})

test('beginnings and ends come in the order asked for', async (t) => {
  const topic = await filled(t)
  const consumer = reader(t)
  const asked = [{ topic, partition: 1 }, { topic, partition: 0 }]
  assert.deepEqual(await consumer.beginningOffsets(asked), [0n, 0n])
  assert.deepEqual(await consumer.endOffsets(asked, { timeout: Infinity }), [0n, 10n])
  assert.deepEqual(await consumer.endOffsets([]), [])
})

test('a time stands for the first record of it or later', async (t) => {
  const topic = await filled(t)
  const consumer = reader(t)
  const at = (timestamp, partition = 0) => ({ topic, partition, timestamp })
  const find = (...times) => consumer.offsetsForTimes(times)
  const [found, none] = await find(at(TIMES + 4500), at(0n, 1))
  assert.equal(found.offset, 5n)
  assert.equal(found.timestamp, TIMES + 5000)
  assert.equal(none, null)
  assert.equal((await find(at(new Date(TIMES + 9000))))[0].offset, 9n)
  assert.deepEqual(await find(at(9_999_999_999_999)), [null])
  await assert.rejects(find(at(1), at(2)), { code: 'InvalidArgument' })
})

test('what is not there is told when the time of the call is over', async (t) => {
  const topic = await filled(t)
  const consumer = reader(t)
  for (const unknown of [{ topic: `${topic}-none`, partition: 0 }, { topic, partition: 9 }]) {
    const late = { code: 'Timeout', message: new RegExp(unknown.topic) }
    await assert.rejects(consumer.endOffsets([unknown], { timeout: 300 }), late)
    await assert.rejects(consumer.beginningOffsets([unknown], { timeout: 300 }), late)
    await assert.rejects(consumer.offsetsForTimes([{ ...unknown, timestamp: 0 }], { timeout: 300 }), late)
  }
  const signal = AbortSignal.timeout(50)
  await assert.rejects(consumer.endOffsets([{ topic, partition: 9 }], { signal }), { name: 'TimeoutError' })
})

test('arguments that make no sense are refused', async (t) => {
  const topic = await filled(t)
  const consumer = reader(t)
  const calls = [
    (partitions) => consumer.beginningOffsets(partitions),
    (partitions) => consumer.endOffsets(partitions),
    (partitions) => consumer.committedWithMetadata(partitions),
    (partitions) => consumer.offsetsForTimes(partitions),
    async (partitions) => consumer.assign(partitions)
  ]
  const none = [undefined, topic, { topic, partition: 0 }, [topic], [{ topic }], [{ topic, partition: -1 }], [null]]
  for (const call of calls) {
    for (const partitions of none) await assert.rejects(call(partitions), TypeError)
  }
  const first = { topic, partition: 0 }
  for (const timestamp of [NaN, 1.5, -1, '5', undefined, 1n << 63n, new Date(NaN)]) {
    await assert.rejects(consumer.offsetsForTimes([{ ...first, timestamp }]), TypeError)
  }
  for (const options of [{ timeout: NaN }, { timeout: -1 }, 5, { signal: 5 }]) {
    await assert.rejects(consumer.endOffsets([first], options), TypeError)
  }
  for (const records of [-1, NaN, '3', undefined]) {
    await assert.rejects(consumer.seekBeforeEnd(first, records), TypeError)
  }
  assert.throws(() => consumer.subscribePattern(/a/), TypeError)
  await assert.rejects(consumer.endOffsets([{ topic: 'a/b', partition: 0 }]), { code: 'InvalidTopic' })
  await consumer.close()
  await assert.rejects(consumer.endOffsets([first]), { code: 'Closed' })
  await assert.rejects(consumer.offsetsForTimes([{ ...first, timestamp: 0 }]), { code: 'Closed' })
  assert.throws(() => consumer.assign([first]), { code: 'Closed' })
  assert.equal(consumer.currentLag(first), null)
  consumer.keepAlive()
})

test('a seek before the end goes no further than the beginning', async (t) => {
  // Records are looked after when time has passed: here none does.
  t.mock.method(Date, 'now', () => 0)
  const topic = await filled(t)
  const consumer = reader(t)
  const [first, second] = [{ topic, partition: 0 }, { topic, partition: 1 }]
  consumer.assign([first, second])
  await readRecords(consumer, 1)
  assert.equal(await consumer.seekBeforeEnd(first, 3), 7n)
  assert.deepEqual(await offsetsRead(consumer, 3), [7n, 8n, 9n])
  assert.equal(await consumer.seekBeforeEnd(first, (1n << 63n) - 1n), 0n)
  assert.equal(consumer.position(first), 0n)
  assert.equal(await consumer.seekBeforeEnd(second, 5, { timeout: 100_000 }), 0n)
  consumer.assign([second])
  await assert.rejects(consumer.seekBeforeEnd(first, 3), { code: 'NotAssigned' })
})

test('the lag falls to nothing as records are read', async (t) => {
  const topic = await filled(t)
  const consumer = reader(t)
  const first = { topic, partition: 0 }
  assert.equal(consumer.currentLag(first), null)
  consumer.assign([first])
  for (let left = 9n; left >= 0n; left--) {
    await readRecords(consumer, 1)
    assert.equal(consumer.currentLag(first), left)
  }
})

test('a pattern reads topics that come later', async (t) => {
  const topic = await place.topic()
  const [one, two, other] = [`${topic}-a`, `${topic}-b`, `x${topic}-a`]
  for (const name of [one, other]) {
    await place.broker.createTopic(name)
    await fill(t, name, 1)
  }
  const consumer = reader(t, { group: `group-of-${topic}`, metadataMaxAge: 200 })
  assert.throws(() => consumer.subscribePattern('('), { code: 'InvalidArgument' })
  consumer.subscribePattern(`${topic}-[ab]`)
  assert.equal((await readRecords(consumer, 1))[0].topic, one)
  await place.broker.createTopic(two)
  await fill(t, two, 1)
  assert.equal((await readRecords(consumer, 1))[0].topic, two)
})

test('what was committed is told with what stands beside it', async (t) => {
  const topic = await filled(t)
  const consumer = reader(t, { group: `group-of-${topic}` })
  const both = [{ topic, partition: 0 }, { topic, partition: 1 }]
  consumer.assign(both)
  const half = { ...both[0], offset: 4, metadata: 'half', leaderEpoch: 0 }
  await consumer.commit([half, { ...both[1], offset: 0n }])
  assert.deepEqual(await consumer.committedWithMetadata(both, { timeout: 100_000 }), [
    { offset: 4n, metadata: 'half', leaderEpoch: 0 },
    { offset: 0n, metadata: '', leaderEpoch: null }
  ])
  assert.deepEqual(await consumer.committed(both), [4n, 0n])
  consumer.commitSoon({ ...half, metadata: 'more' })
  await consumer.commit({ ...both[1], offset: 0n })
  assert.equal((await consumer.committedWithMetadata(both))[0].metadata, 'more')
  const other = reader(t, { group: `another-of-${topic}` })
  assert.deepEqual(await other.committedWithMetadata(both), [null, null])
  const long = consumer.commit({ ...half, metadata: 'x'.repeat(40_000) })
  await assert.rejects(long, { code: 'InvalidArgument' })
  await assert.rejects(consumer.commit({ ...half, metadata: 5 }), TypeError)
  await assert.rejects(consumer.commit({ ...half, leaderEpoch: -1 }), TypeError)
})

test('signs of life keep what a member has beyond its time', async (t) => {
  const topic = await filled(t)
  const begun = async (group, maxPollInterval) => {
    const consumer = reader(t, { group, maxPollInterval, autoCommit: false })
    consumer.subscribe(topic)
    await readRecords(consumer, 1)
    return consumer
  }
  // A slow machine may not come to them in time: then with longer ones.
  for (const allowed of [500, 2000, 8000, 32_000]) {
    const alive = await begun(`alive-of-${topic}-${allowed}`, allowed)
    alive.keepAlive()
    const silent = await begun(`silent-of-${topic}-${allowed}`, allowed)
    // Who has read last and says nothing is late; who has read before it would be too.
    while (silent.assignment().length > 0) {
      alive.keepAlive()
      await new Promise((resolve) => setImmediate(resolve))
    }
    const kept = alive.assignment().length
    await Promise.all([alive.close(), silent.close()])
    if (kept === 2) return
  }
  assert.fail('the partitions went all the same')
})
