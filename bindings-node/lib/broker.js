'use strict'

const native = require('./native')
const { Pump } = require('./pump')
const { wantLog } = require('./log')
const { CLOSE, brokerPairs, onlyKnown, millis, whole } = require('./config')
const { call, errorOf } = require('./error')

const NO_OPTIONS = Object.freeze({})
const TOPIC_OPTIONS = new Set(['partitions'])
const OWN = ['listen', 'dataDir', 'data.dir', 'data_dir']

// A broker runs until it is stopped, also if nobody holds it any more.
const running = new Set()

/** A broker in this process: any client can connect to it. */
class Broker {
  #pump
  #native
  #stopping

  /** Use `Broker.start`. */
  constructor (options = NO_OPTIONS) {
    const given = brokerPairs(options, OWN)
    const listen = textOf('listen', options.listen)
    const folder = textOf('dataDir', options.dataDir ?? options['data.dir'] ?? options.data_dir)
    wantLog()
    this.#pump = new Pump(
      (bell) => call(() => new native.NativeBroker(listen, folder, given, bell)),
      (pump) => {
        pump.settle(call(() => this.#native.drain()))
        return false
      }
    )
    this.#native = this.#pump.native
  }

  /** Starts one: in memory on a free port of the loopback interface, unless options say more. */
  static async start (options = NO_OPTIONS) {
    const broker = new this(options)
    await broker.#call(() => broker.#native.start())
    running.add(broker)
    return broker
  }

  /** HOST:PORT for clients on this machine: the value for bootstrapServers. */
  get address () {
    return this.#native.address
  }

  /** The cluster's id, which a data folder keeps. */
  get clusterId () {
    return this.#native.clusterId
  }

  /** Creates a topic; it can be produced to when this resolves. */
  async createTopic (name, options = NO_OPTIONS) {
    if (typeof name !== 'string') throw new TypeError('the name of a topic is a string')
    const partitions = whole('partitions', onlyKnown(options, TOPIC_OPTIONS).partitions, 1, 1)
    if (this.#stopping !== undefined) throw errorOf('Closed', 'the broker is stopped')
    await this.#call(() => this.#native.createTopic(name, partitions))
  }

  /** Stops it: answers what is open, flushes and closes the logs. A second call does nothing. */
  async stop (options = NO_OPTIONS) {
    const timeout = millis('timeout', onlyKnown(options, CLOSE).timeout, native.brokerStopTimeout())
    this.#stopping ??= this.#stop(timeout)
    await this.#stopping
  }

  [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')] () {
    return this.stop()
  }

  async #stop (timeout) {
    try {
      await this.#call(() => this.#native.stop(timeout))
    } finally {
      running.delete(this)
    }
  }

  async #call (begin) {
    await this.#pump.call(call(begin))
  }
}

function textOf (name, value) {
  if (value === undefined || value === null) return undefined
  if (typeof value === 'string') return value
  // A folder may be given as a URL or in another form that says itself.
  if (value instanceof URL && value.protocol === 'file:') return require('node:url').fileURLToPath(value)
  throw errorOf('InvalidOption', `\`${name}\` takes a string, not ${typeof value}`)
}

module.exports = { Broker }
