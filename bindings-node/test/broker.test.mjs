import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { pathToFileURL } from 'node:url'
import { Broker, Consumer, Producer } from 'ottla'
import { readValues } from './place.mjs'

test('a broker on a folder finds its records and commits again', async (t) => {
  const dataDir = await mkdtemp(join(tmpdir(), 'ottla-'))
  t.after(() => rm(dataDir, { recursive: true }))
  const options = (broker) => ({
    bootstrapServers: broker.address, group: 'g', topics: ['kept'], start: 'earliest', autoCommit: false
  })

  const first = await Broker.start({ dataDir })
  const { clusterId } = first
  await first.createTopic('kept')
  const producer = new Producer({ bootstrapServers: first.address })
  assert.equal((await producer.sendMany('kept', ['a', 'b', 'c'])).ok, true)
  await producer.close()
  const reader = new Consumer(options(first))
  assert.deepEqual(await readValues(reader, 1), ['a'])
  await reader.commit()
  await reader.close()
  await assert.rejects(Broker.start({ dataDir }), /in use/)
  await first.stop()

  const second = await Broker.start({ dataDir: pathToFileURL(dataDir) })
  assert.equal(second.clusterId, clusterId)
  const again = new Consumer(options(second))
  assert.deepEqual(await readValues(again, 2), ['b', 'c'])
  await again.close()
  await second.stop()
})

test('brokers of one process are apart from each other', async () => {
  const [one, two] = await Promise.all([Broker.start(), Broker.start()])
  assert.notEqual(one.address, two.address)
  assert.notEqual(one.clusterId, two.clusterId)
  await Promise.all([one.stop(), two.stop()])
})

test('a stop may be given all the time there is', async () => {
  const broker = await Broker.start()
  await broker.stop({ timeout: Infinity })
  await assert.rejects(broker.createTopic('t'), { code: 'Closed' })
})

test('a second stop does nothing, and other calls say that it is stopped', async () => {
  const broker = await Broker.start()
  await broker.stop()
  await broker.stop()
  await assert.rejects(broker.createTopic('t'), { code: 'Closed' })
  assert.equal(typeof broker[Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')], 'function')
})
