// The demo's program in Node: sends flights, or reads them as a member of a group.
import { createInterface } from 'node:readline'
import { once } from 'node:events'
import { Consumer, Producer } from 'ottla'

const WATCH = 50 // ms between two looks at the partitions a member owns
const STRIDE = 5000 // records between two lines of progress

async function produce(bootstrapServers, topic) {
  const producer = new Producer({ bootstrapServers })
  let records = 0
  let bytes = 0
  let begun
  for await (const row of createInterface({ input: process.stdin })) {
    begun ??= performance.now()
    const [line, key, value] = split(row)
    // Fire and forget: what fails makes the close reject.
    const record = { key: key === '' ? undefined : key, headers: { line } }
    while (!producer.push(topic, value, record)) await producer.drain()
    records += 1
    bytes += key.length + value.length
    if (records % STRIDE === 0) say('sent', records, bytes)
  }
  await producer.flush()
  const millis = begun === undefined ? 0 : Math.round(performance.now() - begun)
  await producer.close()
  say('done', records, bytes, millis)
}

function split(row) {
  const first = row.indexOf('\t')
  const second = row.indexOf('\t', first + 1)
  return [row.slice(0, first), row.slice(first + 1, second), row.slice(second + 1)]
}

async function consume(bootstrapServers, topic, group) {
  const leave = new AbortController()
  process.stdin.resume().once('end', () => leave.abort())
  const consumer = new Consumer({
    bootstrapServers,
    group,
    topics: [topic],
    start: 'earliest',
    autoCommit: false,
  })
  let assigned = 0
  const watch = setInterval(() => {
    const now = consumer.assignment().length
    if (now !== assigned) say('assigned', (assigned = now))
  }, WATCH)
  const counts = new Map()
  let records = 0
  let bytes = 0
  let first
  let last
  const batches = consumer.batches({ signal: leave.signal })
  for await (const batch of untilAborted(batches, leave.signal)) {
    first ??= performance.now()
    let rows = ''
    for (const record of batch) {
      const line = record.headers.get('line').toString()
      const key = record.key?.toString() ?? ''
      const value = record.value.toString()
      rows += `record\t${record.partition}\t${record.offset}\t${line}\t${key}\t${value}\n`
      records += 1
      bytes += key.length + value.length
      if (key !== '') counts.set(key, (counts.get(key) ?? 0) + 1)
    }
    await write(rows)
    await batch.commit()
    last = performance.now()
  }
  clearInterval(watch)
  await consumer.close()
  let rows = ''
  for (const [key, count] of counts) rows += `count\t${key}\t${count}\n`
  await write(rows)
  say('left', records, bytes, first === undefined ? 0 : Math.round(last - first))
}

async function* untilAborted(batches, signal) {
  try {
    yield* batches
  } catch (error) {
    if (!signal.aborted) throw error
  }
}

async function write(text) {
  if (!process.stdout.write(text)) await once(process.stdout, 'drain')
}

function say(...fields) {
  process.stdout.write(`${fields.join('\t')}\n`)
}

const [verb, ...rest] = process.argv.slice(2)
if (verb === 'produce' && rest.length === 2) await produce(...rest)
else if (verb === 'consume' && rest.length === 3) await consume(...rest)
else {
  console.error('usage: flights.mjs produce ADDRESS TOPIC | consume ADDRESS TOPIC GROUP')
  process.exitCode = 2
}
