// What tests share: a broker, clients that are closed at a test's end, and programs of their own.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import { Broker, Consumer, OttlaError, Producer } from 'ottla'

let topics = 0

/** A broker for all tests of a file, and clients of it that end with their test. */
export async function startPlace () {
  const broker = await Broker.start({ numPartitions: 1 })
  return {
    broker,
    address: broker.address,
    /** A topic that no other test has. */
    async topic (partitions = 1) {
      const name = `topic-${++topics}`
      await broker.createTopic(name, { partitions })
      return name
    },
    producer (t, options) {
      const producer = new Producer({ bootstrapServers: broker.address, ...options })
      endsWith(t, producer, 5000)
      return producer
    },
    consumer (t, topic, options) {
      const consumer = new Consumer({
        bootstrapServers: broker.address,
        group: `group-of-${topic}`,
        topics: [topic],
        start: 'earliest',
        ...options
      })
      endsWith(t, consumer)
      return consumer
    },
    stop: () => broker.stop()
  }
}

/** Closes a client at its test's end; it may tell of what it could not finish, and of nothing else. */
export function endsWith (t, client, timeout) {
  t.after(() => client.close({ timeout }).catch((error) => {
    if (!(error instanceof OttlaError)) throw error
  }))
}

/**
 * An address by which nobody gets to the broker before it is opened: what connects there is held, unread. A client that
 * knows no other can store nothing, however fast the broker is.
 */
export async function startGate (t, address) {
  const held = new Set()
  let open = false
  const pass = (socket) => {
    const [host, port] = address.split(':')
    const onward = connect(port, host)
    for (const [from, to] of [[socket, onward], [onward, socket]]) from.pipe(to).on('error', () => from.destroy())
    held.add(onward)
  }
  const server = createServer({ pauseOnConnect: true }, (socket) => {
    held.add(socket.on('error', () => {}))
    if (open) pass(socket)
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  t.after(() => {
    server.close()
    for (const socket of held) socket.destroy()
  })
  return {
    address: `127.0.0.1:${server.address().port}`,
    open () {
      open = true
      for (const socket of [...held]) pass(socket)
    }
  }
}

/** What a promise has come to after the loop has turned a few times: so long as it waits, 'waiting'. */
export async function stateOf (promise) {
  let state = 'waiting'
  promise.then(() => { state = 'done' }, () => { state = 'failed' })
  for (let turn = 0; turn < 10; turn++) await new Promise((resolve) => setImmediate(resolve))
  return state
}

/** Looks again and again until something holds; fails with what it waited for if that takes too long. */
export async function until (what, holds, limit = 100_000) {
  const end = performance.now() + limit
  while (!holds()) {
    if (performance.now() > end) throw new Error(`waited ${limit} ms in vain: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

/** The next so many records, as their values. */
export async function readValues (consumer, count) {
  const records = await readRecords(consumer, count)
  return records.map((record) => String(record.value))
}

export async function readRecords (consumer, count) {
  const records = []
  while (records.length < count) {
    const record = await consumer.poll({ timeout: 100_000 })
    if (record === null) throw new Error(`only ${records.length} of ${count} records came`)
    records.push(record)
  }
  return records
}

/** Runs a program to its end; one that hangs is killed, and its status is then null. */
export function runProgram (code, { args = [], env = {}, limit = 200_000 } = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, ['--input-type=module', ...args, '-e', code], {
      cwd: import.meta.dirname ?? new URL('.', import.meta.url).pathname,
      env: { ...process.env, ...env }
    })
    let [out, err] = ['', '']
    child.stdout.on('data', (data) => { out += data })
    child.stderr.on('data', (data) => { err += data })
    const timer = setTimeout(() => child.kill('SIGKILL'), limit)
    child.on('error', reject)
    child.on('close', (status) => {
      clearTimeout(timer)
      resolve({ status, out: out.trim(), err: err.trim() })
    })
  })
}
