import ottla from './index.js'

export const {
  Producer,
  Consumer,
  Broker,
  Batch,
  ConsumerRecord,
  Headers,
  Delivery,
  SendReport,
  OttlaError,
  RetriableError,
  AbortableError,
  FatalError,
  UsageError
} = ottla
export default ottla
