// What tests share: a broker, clients that are closed at a test's end, and programs of their own.
import { spawn } from 'node:child_process'
import { Broker, Consumer, Producer } from 'ottla'

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
      t.after(() => producer.close().catch(() => {}))
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
      t.after(() => consumer.close().catch(() => {}))
      return consumer
    },
    stop: () => broker.stop()
  }
}

/** Looks again and again until something holds; fails with what it waited for if that takes too long. */
export async function until (what, holds, limit = 20_000) {
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
    const record = await consumer.poll({ timeout: 20_000 })
    if (record === null) throw new Error(`only ${records.length} of ${count} records came`)
    records.push(record)
  }
  return records
}

/** Runs a program to its end; one that hangs is killed, and its status is then null. */
export function runProgram (code, { args = [], env = {}, limit = 30_000 } = {}) {
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
