'use strict'

const { EventEmitter } = require('node:events')
const native = require('./native')
const { Pump } = require('./pump')
const { wantLog } = require('./log')
const { takePacker, putBackPacker, isBytes, largeValue } = require('./pack')
const { Delivery, SendReport } = require('./delivery')
const { TIMER_MAX, WAIT, TIMED, CLOSE, pairs, onlyKnown, millis } = require('./config')
const { checked, abortable } = require('./abort')
const { call, errorOf, toError } = require('./error')

const FULL = -1
/** Batches whose records are settled between two looks at the clock. */
const BATCHES_A_STEP = 16
/** What a process that ends has for what was pushed. */
const EXIT_MS = 5000
/** Longer than the name of any topic. */
const NAME_MAX = 250
const NO_OPTIONS = Object.freeze({})
const PUSH = new Set(['key', 'headers', 'partition', 'timestamp'])
const SEND = new Set([...PUSH, 'signal'])
const ROW = new Set([...PUSH, 'value'])

// Producers with records that nobody waits for: they are flushed before the process ends.
const unflushed = new Set()
let flushesAtExit = false

/** Sends records to topics. */
class Producer extends EventEmitter {
  #pump
  #native
  #send
  #push
  /** Topics that the native half knows by a number, and the names by it. */
  #topics = new Map()
  #names = []
  /** Of each batch, by its slot: its topic, and resolve and reject of its records in turn. */
  #slots = []
  #reports = new Map()
  /** What waits for room. */
  #waiting = new Set()
  #dirty = false
  /** The call that tells of failures, while somebody listens. */
  #failure
  /** A failure that nobody listened to when it was told. */
  #unheard
  #closing

  constructor (options) {
    super()
    const given = pairs(options)
    wantLog()
    this.#pump = new Pump(
      (bell) => call(() => new native.NativeProducer(given, bell)),
      (pump) => this.#drain(pump)
    )
    this.#native = this.#pump.native
    this.#send = this.#native.sender(true)
    this.#push = this.#native.sender(false)
    this.on('newListener', (event) => {
      if (event === 'error') this.#listen()
    })
    this.on('removeListener', (event) => {
      if (event === 'error' && this.listenerCount('error') === 0) this.#listenNoMore()
    })
  }

  /** Sends a record; resolves with its delivery. */
  send (topic, value, options = NO_OPTIONS) {
    const packer = takePacker()
    let slot
    let signal
    try {
      signal = onlyKnown(options, SEND).signal === undefined ? undefined : checked(options.signal)
      this.#check(topic)
      const large = pack(packer, value, options)
      const number = this.#number(topic)
      slot = large === undefined
        ? this.#send(number, packer.numbers, packer.bytes)
        : this.#send(number, packer.numbers, packer.bytes, large)
      if (slot === FULL) return this.#sendLater(topic, packer, large, signal)
    } catch (refused) {
      return Promise.reject(toError(refused))
    } finally {
      putBackPacker(packer)
    }
    const promise = new Promise((resolve, reject) => this.#expect(slot, topic, resolve, reject))
    this.#pump.retain()
    return signal === undefined ? promise : abortable(signal, promise)
  }

  /** Sends a record and forgets it; false if there is no room, and nothing was kept of it. */
  push (topic, value, options = NO_OPTIONS) {
    const packer = takePacker()
    try {
      this.#check(topic)
      const large = pack(packer, value, onlyKnown(options, PUSH))
      const number = this.#number(topic)
      const slot = large === undefined
        ? this.#push(number, packer.numbers, packer.bytes)
        : this.#push(number, packer.numbers, packer.bytes, large)
      if (slot === FULL) return false
    } catch (refused) {
      throw toError(refused)
    } finally {
      putBackPacker(packer)
    }
    if (!this.#dirty) this.#setDirty()
    return true
  }

  /** Resolves when there is room again. */
  async drain (options = NO_OPTIONS) {
    const signal = checked(onlyKnown(options, WAIT).signal)
    const number = call(() => this.#native.room(0))
    await abortable(signal, this.#pump.call(number), () => this.#pump.forget(number))
  }

  /** Sends many records; resolves with a report on each. */
  async sendMany (topic, rows, options = NO_OPTIONS) {
    const signal = checked(onlyKnown(options, WAIT).signal)
    const list = listOf(rows)
    this.#check(topic)
    if (list.length === 0) {
      const none = new BigInt64Array(0)
      const columns = { partitions: new Int32Array(0), offsets: none, timestamps: none }
      return new SendReport(topic, columns, new Map())
    }
    const report = this.#native.openReport(list.length)
    const refused = new Map()
    const told = new Promise((resolve) => this.#reports.set(report, resolve))
    this.#pump.retain()
    const stop = () => {
      this.#native.dropReport(report)
      if (this.#reports.delete(report)) this.#pump.release()
    }
    try {
      const dispatched = this.#dispatch(topic, list, report, refused, signal)
      this.#wait(dispatched)
      this.#pump.turn()
      const whole = Promise.all([told, dispatched])
      const [columns] = await abortable(signal, whole)
      const errors = new Map(refused)
      for (let at = 0; at < columns.errors.length; at += 2) {
        errors.set(columns.errors[at], toError(columns.errors[at + 1]))
      }
      return new SendReport(topic, columns, errors)
    } finally {
      stop()
    }
  }

  /** Sends all at once, and resolves when each record is delivered or has failed. */
  async flush (options = NO_OPTIONS) {
    const signal = checked(onlyKnown(options, TIMED).signal)
    const timeout = millis('timeout', options.timeout, Infinity)
    const dirty = this.#dirty
    this.#setClean()
    try {
      await this.#flush(timeout, signal)
    } catch (error) {
      // Something may be left of what nobody waits for.
      if (dirty && this.#closing === undefined) this.#setDirty()
      throw error
    }
    this.#raiseUnheard()
  }

  async #flush (timeout, signal) {
    let number
    const cancel = () => {
      if (number !== undefined) this.#pump.forget(number)
    }
    const flushed = async () => {
      if (this.#waiting.size > 0) await Promise.all(this.#waiting)
      number = call(() => this.#native.flush())
      await this.#pump.call(number)
    }
    const text = `not all records were delivered within ${timeout} ms`
    await abortable(signal, within(timeout, flushed(), () => {
      cancel()
      return errorOf('Timeout', text)
    }), cancel)
  }

  /** Delivers what there is, and ends; rejects if records were lost that nobody waited for. */
  async close (options = NO_OPTIONS) {
    const timeout = millis('timeout', onlyKnown(options, CLOSE).timeout)
    this.#closing ??= this.#close(timeout)
    await this.#closing
  }

  [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')] () {
    return this.close()
  }

  async #close (timeout = this.#native.closeTimeout) {
    const start = performance.now()
    this.#setClean()
    if (this.#waiting.size > 0) {
      await within(timeout, Promise.all(this.#waiting), () => undefined)
    }
    const left = Math.max(timeout - (performance.now() - start), 0)
    const number = call(() => this.#native.close(left))
    await this.#pump.call(number)
    this.#listenNoMore()
    this.#raiseUnheard()
  }

  #check (topic) {
    if (this.#closing !== undefined) throw errorOf('Closed', 'the producer is closed')
    if (typeof topic !== 'string') throw new TypeError(`a topic is a string, not ${typeof topic}`)
  }

  /**
   * The topic's number, good until the program is called: it may send to so many others that the
   * number becomes that of another topic.
   */
  #number (topic) {
    const known = this.#topics.get(topic)
    if (known !== undefined) return known
    // What is cut off a name that is too long is nothing to keep: it is refused all the same.
    const name = topic.length > NAME_MAX ? topic.slice(0, NAME_MAX) : topic
    const number = this.#native.topic(name)
    this.#topics.delete(this.#names[number])
    this.#names[number] = name
    this.#topics.set(name, number)
    return number
  }

  /** Sends the packed record when there is room for it. */
  #sendLater (topic, packer, large, signal) {
    const { usedNumbers, usedBytes } = packer
    const later = this.#native.sendLater(this.#number(topic), usedNumbers, usedBytes, large)
    const sent = this.#pump.call(later, ({ slot }) => {
      // At once: the slot may be settled in the same turn.
      this.#pump.retain()
      const delivered = new Promise((resolve, reject) => this.#expect(slot, topic, resolve, reject))
      return { delivered }
    })
    this.#wait(sent)
    const delivery = sent.then(({ delivered }) => delivered)
    return abortable(signal, delivery, () => this.#pump.forget(later))
  }

  /** Notes something that waits for room, until it does no longer. */
  #wait (promise) {
    const waiting = promise.catch(() => {}).finally(() => this.#waiting.delete(waiting))
    this.#waiting.add(waiting)
  }

  #expect (slot, topic, resolve, reject) {
    const waiting = this.#slots[slot]
    if (waiting === undefined) this.#slots[slot] = [topic, resolve, reject]
    else waiting.push(resolve, reject)
  }

  /** Hands the rows of a report over, as fast as there is room. */
  async #dispatch (topic, rows, report, refused, signal) {
    const packer = takePacker()
    let ticket
    try {
      let row = 0
      while (row < rows.length) {
        const first = row
        packer.clear()
        let fault
        while (row < rows.length && !packer.full && fault === undefined) {
          try {
            addRow(packer, rows[row])
            row++
          } catch (error) {
            fault = error
          }
        }
        const count = row - first
        if (fault !== undefined) {
          refused.set(row++, fault)
          this.#native.skipRow(report)
        }
        const { usedNumbers, usedBytes } = packer
        const number = this.#number(topic)
        const taken = ticket !== undefined
          ? 0
          : call(() => this.#native.sendRows(number, usedNumbers, usedBytes, report, first, count))
        if (taken < count) {
          ticket ??= this.#native.joinLine()
          const later = call(() => this.#native.sendRowsLater(
            number, usedNumbers, usedBytes, report, first, count, taken, ticket))
          await this.#pump.call(later)
          if (signal?.aborted) return
        }
      }
    } finally {
      putBackPacker(packer)
      if (ticket !== undefined) {
        this.#native.leaveLine(ticket)
        this.#pump.turn()
      }
    }
  }

  #drain (pump) {
    const news = call(() => this.#native.drain(BATCHES_A_STEP))
    pump.settle(news.calls)
    if (news.places !== undefined) this.#settle(news)
    if (news.reports !== undefined) {
      for (const report of news.reports) {
        const resolve = this.#reports.get(report.number)
        if (resolve === undefined) continue
        this.#reports.delete(report.number)
        this.#pump.release()
        resolve(report)
      }
    }
    return news.more
  }

  #settle ({ places, offsets, timestamps, errors, done }) {
    let fault = 0
    for (let row = 0, at = 0; row < offsets.length; row++, at += 3) {
      const waiting = this.#slots[places[at]]
      const pair = places[at + 1] * 2 + 1
      if (errors !== undefined && errors[fault] === row) {
        waiting[pair + 1](toError(errors[fault + 1]))
        fault += 2
      } else {
        const time = Number(timestamps[row])
        waiting[pair](new Delivery(waiting[0], places[at + 2], offsets[row], time))
      }
      this.#pump.release()
    }
    for (const slot of done) this.#slots[slot] = undefined
  }

  /** Tells listeners of records that failed and that nobody waited for. */
  #listen () {
    if (this.#failure !== undefined || this.#closing !== undefined) return
    this.#failure = this.#native.failure()
    this.#pump.background(this.#failure).catch((error) => {
      this.#failure = undefined
      // Outside of the promise: what a listener throws is the program's to see.
      process.nextTick(() => {
        if (this.listenerCount('error') === 0) {
          this.#unheard ??= error
          return
        }
        this.#listen()
        this.emit('error', error)
      })
    })
  }

  #listenNoMore () {
    if (this.#failure !== undefined) this.#pump.forget(this.#failure)
    this.#failure = undefined
  }

  #raiseUnheard () {
    const unheard = this.#unheard
    this.#unheard = undefined
    if (unheard !== undefined) throw unheard
  }

  static async #flushAll () {
    await Promise.all(Array.from(unflushed, async (producer) => {
      try {
        await producer.flush({ timeout: EXIT_MS })
      } catch (error) {
        // Once: the process would ask again for as long as something is left.
        producer.#setClean()
        process.emitWarning(error)
      }
    }))
  }

  #setDirty () {
    this.#dirty = true
    if (!flushesAtExit) {
      flushesAtExit = true
      process.on('beforeExit', Producer.#flushAll)
    }
    unflushed.add(this)
  }

  #setClean () {
    this.#dirty = false
    unflushed.delete(this)
  }
}

/** The promise's outcome, or what `late` gives if the time is over first: an error is thrown. */
async function within (timeout, promise, late) {
  if (timeout > TIMER_MAX) return promise
  let timer
  const timed = new Promise((resolve, reject) => {
    timer = setTimeout(() => {
      const outcome = late()
      if (outcome instanceof Error) reject(outcome)
      else resolve(outcome)
    }, timeout)
  })
  try {
    return await Promise.race([promise, timed])
  } finally {
    clearTimeout(timer)
  }
}

function listOf (rows) {
  if (Array.isArray(rows)) return rows
  const whole = typeof rows !== 'object' || rows === null || isBytes(rows)
  if (whole || typeof rows[Symbol.iterator] !== 'function') {
    throw new TypeError('records are given as a list, or as something else that can be iterated')
  }
  return Array.from(rows)
}

/** Packs the only record; gives its value if that is large. */
function pack (packer, value, options) {
  const large = largeValue(value)
  const { key, headers, partition, timestamp } = options
  packer.add(key, large === undefined ? value : null, headers, partition, timestamp)
  return large
}

/** Packs a row: a value, key and value, or a record with its parts named. */
function addRow (packer, row) {
  if (row === null || typeof row !== 'object' || isBytes(row)) {
    packer.add(null, row, null)
  } else if (Array.isArray(row)) {
    packer.add(row[0], row[1], null)
  } else {
    onlyKnown(row, ROW)
    packer.add(row.key, row.value, row.headers, row.partition, row.timestamp)
  }
}

module.exports = { Producer }
