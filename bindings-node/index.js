'use strict'

const { Producer } = require('./lib/producer')
const { Consumer } = require('./lib/consumer')
const { Broker } = require('./lib/broker')
const { Batch, ConsumerRecord, Headers } = require('./lib/record')
const { Delivery, SendReport } = require('./lib/delivery')
const errors = require('./lib/error')

// Written out, so that bundlers and `import` find the names.
module.exports = {
  Producer,
  Consumer,
  Broker,
  Batch,
  ConsumerRecord,
  Headers,
  Delivery,
  SendReport,
  OttlaError: errors.OttlaError,
  RetriableError: errors.RetriableError,
  AbortableError: errors.AbortableError,
  FatalError: errors.FatalError,
  UsageError: errors.UsageError
}
