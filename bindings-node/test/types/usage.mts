// Compiled, never run: what a program in TypeScript may write, and what it may not.
import ottla, {
  Batch, Broker, Consumer, Delivery, OttlaError, Producer, RetriableError, type ConsumerRecord,
  type ErrorCode, type ProducerOptions
} from 'ottla'

export async function main (): Promise<void> {
  await using broker = await Broker.start({ dataDir: '/tmp/data', numPartitions: 3 })
  await broker.createTopic('orders', { partitions: 3 })
  const options: ProducerOptions = { bootstrapServers: [broker.address], compression: 'lz4', acks: 'all' }
  await using producer = new Producer(options)
  const at: Delivery = await producer.send('orders', 'v', {
    key: Buffer.from('k'), headers: { a: '1', b: null }, timestamp: new Date(), partition: 0
  })
  const offset: bigint = at.offset
  if (!producer.push('orders', new Uint8Array(2), { headers: [['a', 'b']] })) await producer.drain()
  producer.on('error', (error) => {
    const code: ErrorCode = error.code
    console.error(code, error.kafkaCode?.toFixed(), error.hint)
  })
  const report = await producer.sendMany('orders', ['a', ['k', 'v'], { value: 'v', key: 'k' }, null])
  const offsets: BigInt64Array = report.offsets
  const why: OttlaError | TypeError | undefined = report.errors.get(0)
  const { signal } = new AbortController()
  await producer.flush({ timeout: 1000, signal })

  await using consumer = new Consumer({
    bootstrapServers: broker.address, group: 'billing', topics: ['orders'], start: 'earliest', autoCommit: false
  })
  for await (const record of consumer) {
    const kept: ConsumerRecord = record
    const value: Buffer | null = record.value
    console.log(kept.offset + 1n, value?.length, record.headers.get('a'), [...record.headers])
    await record.commit()
  }
  for await (const batch of consumer.batches({ maxRecords: 5000, signal })) {
    const whole: Batch = batch
    console.log(whole.values().length, batch.offsets[0], [...batch].length)
    await batch.commit({ signal })
  }
  const record: ConsumerRecord | null = await consumer.poll({ timeout: 100 })
  if (record instanceof ottla.ConsumerRecord) consumer.commitSoon(record)
  consumer.seek({ topic: 'orders', partition: 0 }, 5n)
  consumer.seek({ topic: 'orders', partition: 0, offset: 5 })
  consumer.pause(consumer.assignment())
  consumer.assign([{ topic: 'orders', partition: 0 }])
  const ends: bigint[] = await consumer.endOffsets(consumer.assignment(), { timeout: 1000, signal })
  const [first] = await consumer.offsetsForTimes([{ topic: 'orders', partition: 0, timestamp: new Date() }])
  const time: number | undefined = first?.timestamp
  const back: bigint = await consumer.seekBeforeEnd({ topic: 'orders', partition: 0 }, 10)
  await consumer.commit([{ topic: 'orders', partition: 0, offset: back, metadata: 'half' }])
  const [kept] = await consumer.committedWithMetadata(consumer.assignment())
  console.log(ends, time, kept?.metadata.length, consumer.currentLag({ topic: 'orders', partition: 0 }))
  console.log(offset, offsets, why, ottla.RetriableError === RetriableError)

  // @ts-expect-error there is no such option
  const wrong: ProducerOptions = { lingr: 5 }
  // @ts-expect-error nor is there one of a producer's for consumers
  const other = new Consumer({ bootstrapServers: 'localhost:9092', linger: 5 })
  // @ts-expect-error a pattern is in the syntax of Rust's, not JavaScript's
  consumer.subscribePattern(/orders/)
  // @ts-expect-error a number is no value
  await producer.send('orders', 5)
  // @ts-expect-error there is no such event
  producer.on('errors', () => {})
  // @ts-expect-error a broker is started, not made
  const made = new Broker()
  console.log(wrong, other, made)
}
