import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { test } from 'node:test'
import { runProgram } from './place.mjs'

const OPEN = `
  import { Broker, Consumer, Producer } from 'ottla'
  const broker = await Broker.start()
  await broker.createTopic('t')
  const producer = new Producer({ bootstrapServers: broker.address })
  const options = { bootstrapServers: broker.address, group: 'g', topics: ['t'], start: 'earliest' }
`

test('a process with nothing pending ends by itself', async () => {
  const { status, out, err } = await runProgram(`${OPEN}
    await producer.send('t', 'v')
    const consumer = new Consumer(options)
    const record = await consumer.poll()
    producer.on('error', () => {})
    console.log('read', String(record.value))
  `)
  assert.equal(err, '')
  assert.equal(out, 'read v')
  assert.equal(status, 0)
})

test('a process ends by itself also with clients that were never used', async () => {
  const { status, err } = await runProgram(`
    import { Consumer, Producer } from 'ottla'
    new Producer({ bootstrapServers: '127.0.0.1:1' })
    new Consumer({ bootstrapServers: '127.0.0.1:1', group: 'g', topics: ['t'] })
  `)
  assert.equal(err, '')
  assert.equal(status, 0)
})

test('a wait keeps the process alive', async () => {
  const { status, out } = await runProgram(`${OPEN}
    const consumer = new Consumer(options)
    consumer.poll().then((record) => console.log('read', String(record.value)))
    setTimeout(() => producer.send('t', 'late'), 300).unref()
    producer.send('t', 'first').then(() => console.log('sent'))
  `)
  assert.deepEqual(out.split('\n').sort(), ['read first', 'sent'])
  assert.equal(status, 0)
})

test('pushed records are delivered before the process ends', async () => {
  const { status, out, err } = await runProgram(`${OPEN}
    for (let at = 0; at < 1000; at++) producer.push('t', 'v' + at)
    process.on('exit', () => console.log('end'))
    process.once('beforeExit', async () => {
      const consumer = new Consumer(options)
      let last
      for (let at = 0; at < 1000; at++) last = await consumer.poll({ timeout: 100_000 })
      console.log(String(last.value))
    })
  `)
  assert.equal(err, '')
  assert.equal(out, 'v999\nend')
  assert.equal(status, 0)
})

test('pushed records that cannot be delivered are told when the process ends', async () => {
  const { status, err } = await runProgram(`
    import { Producer } from 'ottla'
    const options = { deliveryTimeout: 300, requestTimeout: 200, maxBlock: 300, linger: 0 }
    new Producer({ bootstrapServers: '127.0.0.1:1', ...options }).push('t', 'v')
  `)
  assert.match(err, /not delivered/)
  assert.equal(status, 0)
})

test('what a flush that was given up left is told as well', async () => {
  const { status, out, err } = await runProgram(`
    import { Producer } from 'ottla'
    const options = { deliveryTimeout: 300, requestTimeout: 200, maxBlock: 300, linger: 0 }
    const producer = new Producer({ bootstrapServers: '127.0.0.1:1', ...options })
    producer.push('t', 'v')
    const giveUp = new AbortController()
    const flushed = producer.flush({ signal: giveUp.signal })
    giveUp.abort('enough')
    console.log(await flushed.catch((reason) => reason))
  `)
  assert.equal(out, 'enough')
  assert.match(err, /not delivered/)
  assert.equal(status, 0)
})

test('records flow while every libuv thread is blocked', async () => {
  // Opening a named pipe blocks its thread until somebody opens the other end.
  const { status, out, err } = await runProgram(`
    import { execFileSync } from 'node:child_process'
    import fs from 'node:fs'
    import os from 'node:os'
    import path from 'node:path'
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'ottla-'))
    const pipes = Array.from({ length: 4 }, (_, at) => path.join(folder, String(at)))
    execFileSync('mkfifo', pipes)
    let opened = 0
    for (const pipe of pipes) fs.open(pipe, 'r', () => { opened++ })
    let free = false
    fs.stat(folder, () => { free = true })
    ${OPEN}
    const sent = await Promise.all(Array.from({ length: 1000 }, (_, at) => producer.send('t', 'v' + at)))
    await producer.flush()
    const consumer = new Consumer(options)
    let last
    for (let at = 0; at < 1000; at++) last = await consumer.poll()
    await last.commit()
    await consumer.close()
    await producer.close()
    await broker.stop()
    console.log(sent.length, String(last.value), 'pool', opened, free)
    for (const pipe of pipes) fs.openSync(pipe, fs.constants.O_WRONLY | fs.constants.O_NONBLOCK)
    process.once('exit', () => fs.rmSync(folder, { recursive: true }))
  `, { env: { UV_THREADPOOL_SIZE: '4' } })
  assert.equal(err, '')
  assert.equal(out, '1000 v999 pool 0 false')
  assert.equal(status, 0)
})

test('worker threads have clients of their own, and may end with them open', async () => {
  const { status, out, err } = await runProgram(`
    import { Worker } from 'node:worker_threads'
    ${OPEN}
    await producer.send('t', 'from the main thread')
    const code = \`
      import { Consumer, Producer } from 'ottla'
      import { parentPort, workerData } from 'node:worker_threads'
      const producer = new Producer({ bootstrapServers: workerData })
      const consumer = new Consumer({ bootstrapServers: workerData, group: 'g' + Math.random(), topics: ['t'], start: 'earliest' })
      producer.send('t', 'from a worker').then(async () => {
        const record = await consumer.poll()
        parentPort.postMessage(String(record.value))
        consumer.poll()
        for (;;) { for await (const next of consumer) void next }
      })
    \`
    for (let round = 0; round < 5; round++) {
      const worker = new Worker(code, { eval: true, workerData: broker.address })
      const said = await new Promise((resolve, reject) => worker.on('message', resolve).on('error', reject))
      if (round % 2) await producer.send('t', 'v')
      await worker.terminate()
      console.log(said)
    }
  `)
  assert.equal(err, '')
  assert.equal(out, Array(5).fill('from the main thread').join('\n'))
  assert.equal(status, 0)
})

test('dropped clients and batches are collected', async () => {
  const { status, out, err } = await runProgram(`${OPEN}
    await producer.sendMany('t', Array.from({ length: 100 }, () => Buffer.alloc(50_000)))
    let left = 0
    const registry = new FinalizationRegistry(() => { left-- })
    const use = async () => {
      const consumer = new Consumer({ ...options, group: 'g' + left })
      const producer = new Producer({ bootstrapServers: broker.address })
      await producer.send('t', 'v')
      const record = await consumer.poll()
      for (const client of [consumer, producer, record]) { left++; registry.register(client) }
      await consumer.close()
    }
    for (let round = 0; round < 10; round++) await use()
    for (let tries = 0; tries < 5000 && left > 3; tries++) {
      gc()
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
    console.log(left <= 3 ? 'collected' : left)
  `, { args: ['--expose-gc'] })
  assert.equal(err, '')
  assert.equal(out, 'collected')
  assert.equal(status, 0)
})

test('a broker runs on when nobody holds it any more', async () => {
  const { status, out, err } = await runProgram(`
    import { Broker, Producer } from 'ottla'
    let broker, looked = 0
    const registry = new FinalizationRegistry(() => { looked++ })
    const start = async () => {
      const started = await Broker.start()
      broker = new WeakRef(started)
      // Nobody holds this either: when it is gone the collector has looked at both.
      registry.register({ beside: started.address })
      return started.address
    }
    const collect = async (times) => {
      for (let tries = 0; tries < 100_000 && looked < times; tries++) {
        gc()
        await new Promise((resolve) => setTimeout(resolve, 1))
      }
    }
    const producer = new Producer({ bootstrapServers: await start() })
    await producer.send('t', 'first')
    await collect(1)
    registry.register({ beside: 'what the first look has freed' })
    await collect(2)
    const { offset } = await producer.send('t', 'second')
    console.log(looked, broker.deref() instanceof Broker, offset)
  `, { args: ['--expose-gc'] })
  assert.equal(err, '')
  assert.equal(out, '2 true 1n')
  assert.equal(status, 0)
})

test('log lines go to those who want them, and to nobody else', async () => {
  const silent = await runProgram(`${OPEN} await broker.stop()`)
  assert.equal(silent.err, '')
  const shown = await runProgram(`${OPEN} await broker.stop()`, { env: { NODE_DEBUG: 'ottla' } })
  assert.match(shown.err, /OTTLA \d+: info .*broker started/)
  const { out, err } = await runProgram(`
    import { subscribe } from 'node:diagnostics_channel'
    subscribe('ottla:log', ({ level, target, message }) => console.log(level, target, message))
    const { Broker } = await import('ottla')
    const broker = await Broker.start()
    await broker.stop()
  `)
  assert.match(out, /info ottla_broker\S* broker started/)
  assert.equal(err, '')
})

test('log lines come to the main thread again when a worker that took them has ended', async () => {
  const { status, out, err } = await runProgram(`
    import { subscribe } from 'node:diagnostics_channel'
    import { Worker } from 'node:worker_threads'
    let heard = () => {}
    subscribe('ottla:log', ({ message }) => heard(message))
    const { Broker } = await import('ottla')
    await (await Broker.start()).stop()
    const code = \`
      import { subscribe } from 'node:diagnostics_channel'
      import { parentPort } from 'node:worker_threads'
      subscribe('ottla:log', ({ message }) => message.startsWith('broker started') && parentPort.postMessage('heard'))
      const { Broker } = await import('ottla')
      await Broker.start()
      setInterval(() => {}, 1000)
    \`
    for (let round = 0; round < 3; round++) {
      const worker = new Worker(code, { eval: true })
      const said = await new Promise((resolve, reject) => worker.once('message', resolve).once('error', reject))
      await worker.terminate()
      const line = new Promise((resolve) => { heard = (message) => message.startsWith('broker started') && resolve(message) })
      const broker = await Broker.start()
      const alive = setTimeout(() => { console.log('nothing was heard'); process.exit(1) }, 100_000)
      await line
      clearTimeout(alive)
      console.log(said)
      await broker.stop()
    }
  `)
  assert.equal(err, '')
  assert.equal(out, 'heard\nheard\nheard')
  assert.equal(status, 0)
})

test('require and import give the same classes', async () => {
  const required = createRequire(import.meta.url)('ottla')
  const imported = await import('ottla')
  const names = Object.keys(required).sort()
  assert.deepEqual(Object.keys(imported).filter((name) => name !== 'default' && name !== 'module.exports').sort(), names)
  for (const name of names) assert.equal(imported[name], required[name])
})
