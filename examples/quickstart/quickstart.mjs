// The first program: an embedded broker, ten records sent, a group that reads and commits them.
import { Broker, Consumer, Producer } from 'ottla'

const broker = await Broker.start()
await broker.createTopic('orders', { partitions: 3 })

const producer = new Producer({ bootstrapServers: broker.address })
for (let number = 0; number < 9; number += 1) {
  producer.push('orders', `order ${number}`, { key: 'customer' })
}
const at = await producer.send('orders', 'order 9', { key: 'customer' })
console.log(`order 9: partition ${at.partition}, offset ${at.offset}`)
await producer.close()

const consumer = new Consumer({
  bootstrapServers: broker.address,
  group: 'billing',
  topics: ['orders'],
  start: 'earliest',
  autoCommit: false,
})
let read = 0
for await (const record of consumer) {
  console.log(`read ${record.value} at offset ${record.offset}`)
  await record.commit()
  read += 1
  if (read === 10) break
}
await consumer.close()
await broker.stop()
console.log(`10 records sent, ${read} read and committed`)
