import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { once } from 'node:events'
import { Broker, Delivery, OttlaError, Producer, RetriableError, UsageError } from 'ottla'
import { endsWith, readRecords, readValues, runProgram, startGate, startPlace, stateOf } from './place.mjs'

let place
before(async () => { place = await startPlace() })
after(() => place.stop())

test('a sent record tells where it has arrived', async (t) => {
  const topic = await place.topic(3)
  const producer = place.producer(t)
  const first = await producer.send(topic, 'v', { partition: 2, timestamp: 1000 })
  assert.ok(first instanceof Delivery)
  assert.deepEqual({ ...first }, { topic, partition: 2, offset: 0n, timestamp: 1000 })
  const second = await producer.send(topic, 'w', { partition: 2 })
  assert.equal(second.offset, 1n)
  assert.ok(Math.abs(second.timestamp - Date.now()) < 60_000)
  assert.equal(JSON.parse(JSON.stringify(second)).offset, '1')
})

test('many sends at once each get their own offset', async (t) => {
  const topic = await place.topic(4)
  const producer = place.producer(t)
  const numbers = Array.from({ length: 5000 }, (_, number) => number)
  const sent = numbers.map((number) => producer.send(topic, `v${number}`, { partition: number % 4 }))
  const deliveries = await Promise.all(sent)
  for (const number of numbers) {
    assert.equal(deliveries[number].partition, number % 4)
    assert.equal(deliveries[number].offset, BigInt(Math.floor(number / 4)))
  }
})

test('keys, values and headers arrive as they were, and null is not empty', async (t) => {
  const topic = await place.topic()
  const producer = place.producer(t)
  const long = 'ä'.repeat(100_000)
  const large = Buffer.alloc(200_000, 7)
  const shared = new Uint8Array(new SharedArrayBuffer(40_000)).fill(3)
  const rows = [
    [null, null], ['', ''], ['k', undefined], [Buffer.from([0, 255]), new Uint8Array([1, 2])],
    ['ü😀', long], [large.subarray(0, 40_000), large], [long, shared],
    ['a'.repeat(31), 'a'.repeat(32)], ['a'.repeat(30) + 'é', 'z']
  ]
  for (const [key, value] of rows) await producer.send(topic, value, { key })
  const records = await readRecords(place.consumer(t, topic), rows.length)
  const bytes = (part) => part === null || part === undefined ? null : Buffer.from(part)
  rows.forEach(([key, value], at) => {
    assert.deepEqual(records[at].key, bytes(key), `key ${at}`)
    assert.deepEqual(records[at].value, bytes(value), `value ${at}`)
    assert.equal(records[at].headers.size, 0)
  })
})

test('headers keep their order and repeats, and are sent on unchanged', async (t) => {
  const [topic, onward] = [await place.topic(), await place.topic()]
  const producer = place.producer(t)
  const entries = [['a', '1'], ['b', '2'], ['a', Buffer.from([0xff, 0])], ['a', null], ['', '']]
  await producer.send(topic, 'v', { headers: entries })
  await producer.send(topic, 'v', { headers: { trace: 'x', none: null, empty: '' } })
  await producer.send(topic, 'v', { headers: new Map([['m', 'n']]) })
  const many = Array.from({ length: 1000 }, (_, at) => [`name-${at}`, 'x'.repeat(at)])
  await producer.send(topic, 'v', { headers: many })
  const [first, second, third, fourth] = await readRecords(place.consumer(t, topic), 4)
  const bytes = (list) => list.map(([name, value]) => [name, value === null ? null : Buffer.from(value)])
  assert.deepEqual([...first.headers], bytes(entries))
  assert.equal(first.headers.size, 5)
  assert.equal(first.headers.get('a'), null, 'the last one wins')
  assert.deepEqual(first.headers.getAll('a'), [Buffer.from('1'), Buffer.from([0xff, 0]), null])
  assert.equal(first.headers.get('c'), undefined)
  assert.equal(first.headers.has('b'), true)
  assert.equal(JSON.parse(JSON.stringify(first)).headers.length, 5)
  assert.equal(String(second.headers.get('trace')), 'x')
  assert.equal(second.headers.get('none'), null)
  assert.deepEqual(second.headers.get('empty'), Buffer.alloc(0))
  assert.equal(String(third.headers.get('m')), 'n')
  assert.deepEqual([...fourth.headers], bytes(many))
  await producer.send(onward, first.value, { headers: first.headers })
  const [again] = await readRecords(place.consumer(t, onward), 1)
  assert.deepEqual([...again.headers], bytes(entries))
})

test('a record may have more headers than what they are packed in has room for at first', async (t) => {
  const topic = await place.topic()
  const producer = place.producer(t)
  const headers = Array.from({ length: 5000 }, (_, at) => [`${at}`, null])
  const report = await producer.sendMany(topic, [{ value: 'a', headers }, 'b'])
  assert.ok(report.ok)
  await producer.send(topic, 'c', { headers })
  const records = await readRecords(place.consumer(t, topic), 3)
  assert.deepEqual(records.map(({ value, headers }) => [String(value), headers.size]), [['a', 5000], ['b', 0], ['c', 5000]])
})

test('a time of zero is 1970, one that is not set is now, and bad ones are refused', async (t) => {
  const topic = await place.topic()
  const producer = place.producer(t)
  const date = new Date('2013-01-01T05:15:00Z')
  const good = [0, 0n, 1, date, date.getTime()]
  for (const timestamp of good) await producer.send(topic, 'v', { timestamp })
  for (const timestamp of [undefined, null]) await producer.send(topic, 'v', { timestamp })
  const bad = ['0', -1, -1n, NaN, Infinity, 1.5, 2 ** 53 + 2, new Date(NaN), {}, true, 1n << 63n]
  for (const timestamp of bad) {
    await assert.rejects(producer.send(topic, 'v', { timestamp }), TypeError, String(timestamp))
  }
  const records = await readRecords(place.consumer(t, topic), good.length + 2)
  const times = records.map((record) => record.timestamp)
  assert.deepEqual(times.slice(0, 5), [0, 0, 1, date.getTime(), date.getTime()])
  for (const time of times.slice(5)) assert.ok(Math.abs(time - Date.now()) < 60_000)
  assert.equal(records[0].exactTimestamp, 0n)
})

test('no precision of a time is lost on the way', async (t) => {
  const topic = await place.topic()
  const producer = place.producer(t)
  // The broker refuses times so far ahead: the number that it names is the one that it was sent.
  const timestamp = 2n ** 53n + 1n
  const refused = await producer.send(topic, 'v', { timestamp }).then(() => undefined, (error) => error)
  assert.equal(refused?.code, 'InvalidTimestamp')
  assert.match(refused.message, /9007199254740993/)
})

test('each of many records that fail is told so, and those beside them where they are', async (t) => {
  const [good, bad] = [await place.topic(), await place.topic()]
  const producer = place.producer(t)
  const numbers = Array.from({ length: 100 }, (_, number) => number)
  const sent = numbers.flatMap((number) => [
    producer.send(good, `v${number}`), producer.send(bad, `v${number}`, { timestamp: 2 ** 53 - 1 })])
  const told = await Promise.allSettled(sent)
  for (const number of numbers) {
    assert.deepEqual({ ...told[2 * number].value, timestamp: 0 }, { topic: good, partition: 0, offset: BigInt(number), timestamp: 0 })
    assert.equal(told[2 * number + 1].reason?.code, 'InvalidTimestamp')
    assert.equal(told[2 * number + 1].reason.topic, bad)
  }
})

test('partition 0 is not the same as none, and bad ones are refused', async (t) => {
  const topic = await place.topic(2)
  const producer = place.producer(t)
  for (let count = 0; count < 4; count++) {
    assert.equal((await producer.send(topic, 'v', { partition: 0 })).partition, 0)
  }
  const free = await Promise.all(Array.from({ length: 4 }, () => producer.send(topic, 'v')))
  assert.deepEqual(new Set(free.map(({ partition }) => partition)), new Set([0, 1]))
  for (const partition of [-1, 1.5, '0', NaN, 2 ** 31, true]) {
    await assert.rejects(producer.send(topic, 'v', { partition }), TypeError, String(partition))
  }
  await assert.rejects(producer.send(topic, 'v', { partition: 2 }), { code: 'InvalidPartition' })
})

test('a key goes to the partition that Kafka gives it, as text and as bytes', async (t) => {
  const topic = await place.topic(12)
  const producer = place.producer(t)
  // By Kafka's Utils.murmur2 of the bytes in UTF-8, its highest bit cleared; the fifth has only that.
  const rows = [
    ['thingäöüÄÖÜ', 10], ['😀', 9], ['', 9], ['ä', 5], ['d26skop', 0], ['kafka', 4],
    [Buffer.from([0x80, 0xff, 0x90]), 7], [Buffer.from([0xff, 0xfe, 0xfd, 0xfc]), 7]
  ]
  for (const [key, partition] of rows) {
    for (const given of [key, Buffer.from(key), new Uint8Array(Buffer.from(key))]) {
      assert.equal((await producer.send(topic, 'v', { key: given })).partition, partition, String(key))
    }
  }
  const report = await producer.sendMany(topic, rows.map(([key]) => ({ key, value: 'v' })))
  assert.deepEqual([...report.partitions], rows.map(([, partition]) => partition))
  await assert.rejects(producer.send(topic, 'v', { key: 'k\ud800' }), /surrogate/)
})

test('what is no key, value or header is refused, and nothing is kept of it', async (t) => {
  const topic = await place.topic()
  const producer = place.producer(t)
  for (const bad of [1, true, {}, [1], 1n, new ArrayBuffer(2), () => {}, Symbol('x')]) {
    await assert.rejects(producer.send(topic, bad), TypeError)
    await assert.rejects(producer.send(topic, 'v', { key: bad }), TypeError)
    await assert.rejects(producer.send(topic, 'v', { headers: { a: bad } }), TypeError)
    assert.throws(() => producer.push(topic, bad), TypeError)
  }
  await assert.rejects(producer.send(topic, 'v', { headers: [[1, 'a']] }), TypeError)
  await assert.rejects(producer.send(topic, 'v', { headers: 'a' }), TypeError)
  await assert.rejects(producer.send(5, 'v'), TypeError)
  const half = '\ud800'
  await assert.rejects(producer.send(topic, half), /surrogate/)
  await assert.rejects(producer.send(topic, half + 'x'.repeat(100_000)), /surrogate/)
  await assert.rejects(producer.send(topic, 'v', { headers: { [half]: 'a' } }), /surrogate/)
  assert.equal((await producer.send(topic, 'last')).offset, 0n)
})

test('what is longer than any length can be is refused, and not taken for null', async (t) => {
  const topic = await place.topic()
  const producer = place.producer(t)
  // Never touched, so it takes no memory.
  const endless = Buffer.alloc(2 ** 31)
  const refusal = { code: 'RecordTooLarge' }
  await assert.rejects(producer.send(topic, 'v', { key: endless }), refusal)
  await assert.rejects(producer.send(topic, endless), refusal)
  await assert.rejects(producer.send(topic, 'v', { headers: { h: endless } }), refusal)
  assert.throws(() => producer.push(topic, 'v', { key: endless }), refusal)
  const report = await producer.sendMany(topic, [endless, [endless, 'v'], 'after'])
  assert.deepEqual([...report.errors].map(([row, { code }]) => [row, code]), [[0, 'RecordTooLarge'], [1, 'RecordTooLarge']])
  assert.equal(report.offsets[2], 0n)
})

test('pushed records are delivered, in order', async (t) => {
  const topic = await place.topic()
  const producer = place.producer(t)
  for (let number = 0; number < 1000; number++) {
    assert.equal(producer.push(topic, `v${number}`, { key: 'k' }), true)
  }
  await producer.flush()
  const values = await readValues(place.consumer(t, topic), 1000)
  assert.deepEqual(values, Array.from({ length: 1000 }, (_, number) => `v${number}`))
})

/** A producer of which nothing gets to the broker before the gate is opened, so it is room that ends. */
async function behindGate (t, bufferMemory, options) {
  const gate = await startGate(t, place.address)
  const given = { bootstrapServers: gate.address, bufferMemory, maxBlock: 600_000, ...options }
  const producer = place.producer(t, given)
  return { topic: await place.topic(), gate, producer }
}

test('without room a push is refused, drain waits for room, and sends wait their turn', async (t) => {
  const { topic, gate, producer } = await behindGate(t, 256 * 1024)
  const value = Buffer.alloc(10_000, 1)
  let pushed = 0
  while (producer.push(topic, value)) pushed++
  assert.ok(pushed > 5 && pushed < 27, `${pushed} pushed`)
  const sent = Array.from({ length: 200 }, (_, at) => producer.send(topic, Buffer.alloc(10_000, at)))
  const drained = producer.drain()
  assert.equal(await stateOf(Promise.race([...sent, drained])), 'waiting')
  assert.equal(producer.push(topic, 'small'), false, 'it would overtake those who wait')
  gate.open()
  const deliveries = await Promise.all(sent)
  deliveries.forEach(({ offset }, at) => assert.equal(offset, BigInt(pushed + at)))
  await drained
  while (!producer.push(topic, value)) await producer.drain()
  assert.equal((await producer.send(topic, 'last')).offset, BigInt(pushed + 201))
})

test('a drain by itself ends when there is room for a push', async (t) => {
  const { topic, gate, producer } = await behindGate(t, 256 * 1024)
  const value = Buffer.alloc(10_000, 1)
  let pushed = 0
  while (producer.push(topic, value)) pushed++
  const drained = producer.drain()
  assert.equal(await stateOf(drained), 'waiting')
  gate.open()
  await drained
  assert.equal(producer.push(topic, value), true)
  assert.equal((await producer.send(topic, 'last')).offset, BigInt(pushed + 1))
})

test('a flush waits for records that wait for room', async (t) => {
  const { topic, gate, producer } = await behindGate(t, 128 * 1024)
  const another = place.producer(t)
  assert.equal((await another.send(topic, 'first')).offset, 0n)
  const sent = Array.from({ length: 100 }, () => producer.send(topic, Buffer.alloc(10_000)))
  const flushed = producer.flush()
  assert.equal(await stateOf(flushed), 'waiting')
  gate.open()
  await flushed
  // All are stored by now: whatever is sent, by whomever, comes behind them.
  assert.equal((await another.send(topic, 'last')).offset, 101n)
  const deliveries = await Promise.all(sent)
  deliveries.forEach(({ offset }, at) => assert.equal(offset, BigInt(at + 1)))
})

test('no more waits for room than the buffer may hold, or 16 MiB, with 1 KiB for each record', async (t) => {
  // Of small ones some go where a large one had no room.
  for (const [bytes, count, least, most] of [[64 * 1024, 300, 252, 252], [0, 24_000, 16_384, 23_000]]) {
    const { topic, gate, producer } = await behindGate(t, 128 * 1024)
    const value = Buffer.alloc(bytes)
    while (producer.push(topic, Buffer.alloc(16_000)));
    const outcomes = Array.from({ length: count }, () =>
      producer.send(topic, value).then(() => 'stored', (error) => error.code))
    gate.open()
    const told = await Promise.all(outcomes)
    const waited = told.findIndex((outcome) => outcome !== 'stored')
    assert.ok(waited >= least && waited <= most, `${waited} of ${bytes} bytes waited`)
    assert.deepEqual(new Set(told.slice(waited)), new Set(['BufferFull']))
  }
})

test('a record goes to its topic, however many others are sent to meanwhile', async (t) => {
  const { topic, gate, producer } = await behindGate(t, 128 * 1024)
  const others = () => {
    for (let at = 0; at < 3000; at++) {
      // No topic may have such a name, so nothing comes of them.
      try { producer.push(`?${at}`, 'v') } catch (error) { assert.equal(error.code, 'InvalidTopic') }
    }
  }
  const asked = { * [Symbol.iterator] () { others(); yield ['name', 'value'] } }
  const sent = [producer.send(topic, 'v', { headers: asked }), producer.send(topic, Buffer.alloc(32_000))]
  others()
  const rows = Array.from({ length: 100 }, () => ({ value: Buffer.alloc(5000), headers: asked }))
  const report = producer.sendMany(topic, rows)
  const last = producer.send(topic, 'last')
  gate.open()
  const offsets = (await Promise.all([...sent, last])).map((at) => {
    assert.equal(at.topic, topic)
    return at.offset
  })
  assert.deepEqual(offsets, [0n, 1n, 102n])
  assert.deepEqual([...(await report).offsets], rows.map((_, at) => BigInt(at + 2)))
})

test('a program that sends to ever new topics does not grow by their names', async () => {
  const { out, err } = await runProgram(`
    import { Producer } from 'ottla'
    const producer = new Producer({ bootstrapServers: '127.0.0.1:1' })
    const send = (count) => {
      for (let at = 0; at < count; at++) {
        try {
          producer.push('?'.padEnd(200, 'x') + at, 'v')
        } catch (error) {
          if (error.code !== 'InvalidTopic') throw error
        }
      }
      gc()
      return process.memoryUsage().heapUsed
    }
    const before = send(2000)
    console.log(send(100_000) - before)
    await producer.close()
  `, { args: ['--expose-gc'] })
  assert.equal(err, '')
  assert.ok(Number(out) < 8_000_000, `${out} bytes more`)
})

test('who waits for room too long is told so', async () => {
  const broker = await Broker.start()
  const producer = new Producer({
    bootstrapServers: broker.address, bufferMemory: 64 * 1024, maxBlock: 300, deliveryTimeout: 60_000
  })
  // Until the topic is known its records, too, are given up after maxBlock.
  let known = false
  while (!known) known = await stored(producer.send('t', 'v'))
  await broker.stop()
  while (producer.push('t', Buffer.alloc(10_000)));
  const sent = Array.from({ length: 3 }, () => producer.send('t', Buffer.alloc(10_000)))
  for (const { status, reason } of await Promise.allSettled(sent)) {
    assert.equal(status, 'rejected')
    assert.equal(reason.code, 'BufferFull')
    assert.ok(reason instanceof RetriableError)
    assert.equal(reason.maybeStored, false)
  }
  await assert.rejects(producer.close({ timeout: 0 }), OttlaError)
})

/** Whether a record is stored; else its topic was not known in time. */
async function stored (sent) {
  try {
    await sent
    return true
  } catch (error) {
    assert.equal(error.code, 'DeliveryTimeout')
    return false
  }
}

test('all records of a sendMany have maxBlock together, however often they are handed over', async () => {
  const broker = await Broker.start()
  // Of a known topic nothing is given up before its delivery's time: no room comes by itself.
  const options = { bufferMemory: 128 * 1024, maxBlock: 2000, deliveryTimeout: 600_000 }
  const producer = new Producer({ bootstrapServers: broker.address, ...options })
  let known = false
  while (!known) known = await producer.send('t', 'v').then(() => true, () => false)
  await broker.stop()
  while (producer.push('t', Buffer.alloc(10_000)));
  const start = performance.now()
  // Some 200 parcels: with a time for each they take seven minutes.
  const reports = Array.from({ length: 2 }, () =>
    producer.sendMany('t', Array.from({ length: 3000 }, () => Buffer.alloc(5000))))
  for (const { errors } of await Promise.all(reports)) {
    assert.equal(errors.size, 3000)
    for (const error of errors.values()) {
      assert.equal(error.code, 'BufferFull')
      assert.equal(error.outcome, 'NotSent')
    }
  }
  assert.ok(performance.now() - start < 100_000)
  await assert.rejects(producer.close({ timeout: 0 }), OttlaError)
})

test('sendMany reports on each record', async (t) => {
  const topic = await place.topic(2)
  const producer = place.producer(t)
  const rows = [
    'text', Buffer.from('bytes'), ['key', 'value'], { key: 'k', value: 'named', headers: { h: '1' } },
    { value: 'there', partition: 1, timestamp: 5 }, null, { key: 'tombstone', value: null }
  ]
  const report = await producer.sendMany(topic, rows)
  assert.equal(report.length, rows.length)
  assert.equal(report.ok, true)
  assert.equal(report.errors.size, 0)
  assert.ok(report.offsets instanceof BigInt64Array)
  assert.equal(report.partitions[4], 1)
  assert.equal(report.timestamps[4], 5n)
  assert.deepEqual(report.get(4).toJSON(), { topic, partition: 1, offset: String(report.offsets[4]), timestamp: 5 })
  const records = await readRecords(place.consumer(t, topic), rows.length)
  const found = records.find((record) => String(record.key) === 'k')
  assert.equal(String(found.headers.get('h')), '1')
  assert.equal(records.filter((record) => record.value === null).length, 2)
  JSON.stringify(report)
})

test('sendMany is not all or nothing', async (t) => {
  const topic = await place.topic()
  const producer = place.producer(t, { maxRequestSize: 10_000 })
  const rows = ['a', Buffer.alloc(20_000), 'b', { value: 'c', partition: 7 }, 5, 'd']
  const report = await producer.sendMany(topic, rows)
  assert.equal(report.ok, false)
  assert.deepEqual([...report.errors.keys()].sort(), [1, 3, 4])
  assert.equal(report.errors.get(1).code, 'RecordTooLarge')
  assert.equal(report.errors.get(3).code, 'InvalidPartition')
  assert.ok(report.errors.get(4) instanceof TypeError)
  assert.deepEqual([...report.offsets], [0n, -1n, 1n, -1n, -1n, 2n])
  assert.throws(() => report.get(1), { code: 'RecordTooLarge' })
  assert.deepEqual(await readValues(place.consumer(t, topic), 3), ['a', 'b', 'd'])
})

test('sendMany goes on when there is room, in order with what is sent after it', async (t) => {
  const topic = await place.topic()
  const producer = place.producer(t, { bufferMemory: 128 * 1024 })
  const rows = Array.from({ length: 500 }, (_, at) => Buffer.alloc(5000, at % 251))
  const [report, after] = await Promise.all([producer.sendMany(topic, rows), producer.send(topic, 'after')])
  assert.equal(report.ok, true)
  assert.deepEqual([...report.offsets], rows.map((_, at) => BigInt(at)))
  assert.equal(after.offset, 500n)
})

test('a program that sends while it is asked for its headers mixes nothing up', async (t) => {
  const topic = await place.topic()
  const producer = place.producer(t)
  const inner = []
  const asked = (name) => ({
    * [Symbol.iterator] () {
      inner.push(producer.send(topic, `inner ${name}`, { key: 'other' }))
      yield ['name', name]
    }
  })
  await producer.send(topic, 'one', { key: 'k', headers: asked('one') })
  await producer.sendMany(topic, [{ value: 'two', headers: asked('two') }, { value: 'three', headers: asked('three') }])
  await Promise.all(inner)
  const records = await readRecords(place.consumer(t, topic), 6)
  const found = records.map(({ value, headers }) => `${value}/${headers.get('name') ?? ''}`).sort()
  assert.deepEqual(found, ['inner one/', 'inner three/', 'inner two/', 'one/one', 'three/three', 'two/two'])
})

test('sendMany takes what can be iterated, and nothing else', async (t) => {
  const topic = await place.topic()
  const producer = place.producer(t)
  assert.equal((await producer.sendMany(topic, [])).length, 0)
  assert.equal((await producer.sendMany(topic, new Set(['a', 'b']))).length, 2)
  for (const bad of ['abc', 5, null, {}, Buffer.from('x')]) {
    await assert.rejects(producer.sendMany(topic, bad), TypeError)
  }
})

test('failed pushes come as error events, and otherwise make close reject', async (t) => {
  const options = { bootstrapServers: '127.0.0.1:1', deliveryTimeout: 300, requestTimeout: 200, maxBlock: 300, linger: 0 }
  const heard = new Producer(options)
  // A record that nobody waits for keeps no process alive.
  const alive = setInterval(() => {}, 1000)
  const event = once(heard, 'error').catch((error) => [error])
  heard.push('nowhere', 'x')
  const [error] = await event
  clearInterval(alive)
  assert.ok(error instanceof OttlaError)
  assert.equal(error.retriable, true)
  await heard.close()

  const unheard = new Producer(options)
  unheard.push('nowhere', 'x')
  await assert.rejects(unheard.close(), OttlaError)
  await assert.rejects(unheard.close(), OttlaError, 'a second close gives the same')
})

test('a listener that was removed leaves failures to close', async () => {
  const producer = new Producer({
    bootstrapServers: '127.0.0.1:1', deliveryTimeout: 300, requestTimeout: 200, maxBlock: 300, linger: 0
  })
  const listener = () => assert.fail('it was removed')
  producer.on('error', listener)
  producer.off('error', listener)
  producer.push('nowhere', 'x')
  await assert.rejects(producer.close(), OttlaError)
})

test('an aborted wait rejects with the reason of its signal', async (t) => {
  const producer = new Producer({ bootstrapServers: '127.0.0.1:1', deliveryTimeout: 60_000 })
  endsWith(t, producer, 0)
  const abort = new AbortController()
  const { signal } = abort
  const waits = [
    producer.send('nowhere', 'x', { signal }),
    producer.sendMany('nowhere', ['x'], { signal }),
    producer.flush({ signal })
  ]
  const reason = new Error('enough')
  abort.abort(reason)
  for (const { reason: why } of await Promise.allSettled(waits)) assert.equal(why, reason)
  await assert.rejects(producer.send('nowhere', 'x', { signal }), reason)
  await assert.rejects(producer.drain({ signal }), reason)
  await assert.rejects(producer.flush({ signal: 5 }), TypeError)
})

test('a flush that takes too long says so', async (t) => {
  const producer = new Producer({ bootstrapServers: '127.0.0.1:1', deliveryTimeout: 60_000 })
  endsWith(t, producer, 0)
  producer.push('nowhere', 'x')
  await assert.rejects(producer.flush({ timeout: 100 }), { code: 'Timeout', retriable: true })
})

test('a time longer than a timer can be is no limit', async (t) => {
  const { topic, gate, producer } = await behindGate(t, 128 * 1024)
  const consumer = place.consumer(t, topic)
  producer.push(topic, 'v')
  // Of a time that is longer Node makes one of 1 ms: no timer may be set to it.
  const timers = t.mock.method(globalThis, 'setTimeout')
  const waits = [2 ** 31 - 1, 2 ** 31, Infinity].flatMap((timeout) =>
    [producer.flush({ timeout }), consumer.poll({ timeout })])
  const set = timers.mock.calls.map((call) => call.arguments[1])
  timers.mock.restore()
  assert.deepEqual(set, [2 ** 31 - 1, 2 ** 31 - 1])
  assert.equal(await stateOf(Promise.race(waits)), 'waiting')
  gate.open()
  await consumer.close()
  await Promise.allSettled(waits)
})

test('a close that is given no time has that of the deliveries, and no more', async (t) => {
  const { topic, gate, producer } = await behindGate(t, 128 * 1024, { deliveryTimeout: 400_000 })
  const sent = Array.from({ length: 100 }, () => producer.send(topic, Buffer.alloc(10_000)))
  // The clock of timers stands still, but when it is told to go on.
  t.mock.timers.enable({ apis: ['setTimeout'] })
  const closed = producer.close()
  t.mock.timers.tick(400_999)
  assert.equal(await stateOf(Promise.race([closed, ...sent])), 'waiting')
  t.mock.timers.tick(1)
  const refused = await sent.at(-1).then(() => undefined, (error) => error)
  assert.equal(refused?.code, 'Closed')
  gate.open()
  await Promise.allSettled([closed, ...sent])
  assert.equal((await sent[0]).offset, 0n)
})

test('after close every call says so, and a second close does nothing', async (t) => {
  const topic = await place.topic()
  const producer = place.producer(t)
  producer.push(topic, 'v')
  await producer.close()
  await producer.close()
  await assert.rejects(producer.send(topic, 'v'), { code: 'Closed' })
  await assert.rejects(producer.sendMany(topic, ['v']), { code: 'Closed' })
  assert.throws(() => producer.push(topic, 'v'), (error) => error instanceof UsageError && error.code === 'Closed')
  await assert.rejects(producer.drain(), { code: 'Closed' })
  assert.equal(typeof producer[Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')], 'function')
})

test('a close settles what was sent before it', async (t) => {
  const topic = await place.topic()
  const producer = place.producer(t, { bufferMemory: 128 * 1024 })
  const sent = Array.from({ length: 100 }, () => producer.send(topic, Buffer.alloc(10_000)))
  await producer.close({ timeout: 100_000 })
  assert.equal((await Promise.all(sent)).length, 100)
})

test('what a close gives up is told to those who wait', async () => {
  const producer = new Producer({ bootstrapServers: '127.0.0.1:1', deliveryTimeout: 60_000 })
  const sent = producer.send('nowhere', 'x')
  const closed = producer.close({ timeout: 100 })
  const [{ reason }] = await Promise.allSettled([sent, closed])
  assert.ok(reason instanceof OttlaError)
  assert.equal(reason.maybeStored, false)
})
