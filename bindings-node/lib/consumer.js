'use strict'

const native = require('./native')
const { Pump } = require('./pump')
const { wantLog } = require('./log')
const { Reading } = require('./reading')
const { Batch, ConsumerRecord } = require('./record')
const { partitionOf, timeOf } = require('./pack')
const { WAIT, TIMED, CLOSE, pairs, onlyKnown, millis, whole } = require('./config')
const { checked, abortable } = require('./abort')
const { call, errorOf } = require('./error')

const NO_OPTIONS = Object.freeze({})
const BATCHES = new Set(['maxRecords', 'signal'])

/**
 * Reads topics, sharing their partitions with the other members of its group, or the partitions that
 * it is told to: see `assign`.
 */
class Consumer {
  #pump
  #native
  #reading
  #closing

  constructor (options) {
    const given = pairs(options, ['topics'])
    wantLog()
    this.#pump = new Pump(
      (bell) => call(() => new native.NativeConsumer(given, bell)),
      (pump) => {
        pump.settle(call(() => this.#native.drain()))
        this.#reading?.serve()
        return false
      }
    )
    this.#native = this.#pump.native
    this.#reading = new Reading(this, this.#pump)
    const { topics } = options
    if (topics !== undefined && topics !== null) this.subscribe(topics)
  }

  /** Reads these topics, and no others from now on. */
  subscribe (topics) {
    const list = typeof topics === 'string' ? [topics] : topics
    if (!Array.isArray(list) || !list.every((topic) => typeof topic === 'string')) {
      throw new TypeError('topics are given as a list of strings')
    }
    this.#leave(() => this.#native.subscribe(list))
  }

  /** Reads the topics whose whole names match a regular expression, also those that come later. */
  subscribePattern (pattern) {
    if (typeof pattern !== 'string') throw new TypeError('a pattern of topics is given as a string')
    this.#leave(() => this.#native.subscribePattern(pattern))
  }

  /** Reads these partitions, and no others from now on, without a group that shares them out. */
  assign (partitions) {
    const list = pairsOf(partitions)
    this.#leave(() => this.#native.assign(list))
  }

  /** Leaves the group, after what is finished was committed, and reads nothing. */
  unsubscribe () {
    this.#leave(() => this.#native.unsubscribe())
  }

  /** Reads other partitions: of those that it leaves nothing more of the batch under way is given. */
  #leave (choose) {
    this.#reading.note()
    call(choose)
    this.#reading.recheck()
  }

  /** The next record; null if the time is over before one comes. */
  async poll (options = NO_OPTIONS) {
    const signal = checked(onlyKnown(options, TIMED).signal)
    const timeout = millis('timeout', options.timeout, Infinity)
    return (await this.#reading.next({ timeout, signal })) ?? null
  }

  /** All records from here on, until the consumer is closed. */
  [Symbol.asyncIterator] () {
    return this.#iterate({})
  }

  /** The same in batches of one partition, of so many records at most. */
  batches (options = NO_OPTIONS) {
    const records = whole('maxRecords', onlyKnown(options, BATCHES).maxRecords, 1, Infinity)
    return this.#iterate({ records, signal: checked(options.signal) })
  }

  #iterate (want) {
    this.#checkOpen()
    let ended = false
    const reading = this.#reading
    const done = { value: undefined, done: true }
    const failed = (error) => {
      // Closed by the program itself, which is how a loop ends in good order.
      if (this.#closing === undefined || error?.code !== 'Closed') throw error
      ended = true
      return done
    }
    const found = (value) => ({ value, done: false })
    return {
      next () {
        if (ended) return Promise.resolve(done)
        try {
          const given = reading.next(want)
          return given instanceof Promise ? given.then(found, failed) : Promise.resolve(found(given))
        } catch (error) {
          return new Promise((resolve) => resolve(failed(error)))
        }
      },
      return (value) {
        ended = true
        return Promise.resolve({ value, done: true })
      },
      [Symbol.asyncIterator] () {
        return this
      }
    }
  }

  /**
   * Commits a record or a batch and all before it in its partition, offsets to read on from, or all
   * that was given so far. Resolves when the group's coordinator has it.
   */
  async commit (what, options = NO_OPTIONS) {
    const signal = checked(onlyKnown(options, WAIT).signal)
    const number = call(() => this.#commit(what, {
      batch: (handle, end) => this.#native.commitBatch(handle, end),
      offsets: (...places) => this.#native.commitOffsets(...places),
      all: () => this.#native.commitFinished()
    }))
    await abortable(signal, this.#pump.call(number), () => this.#pump.forget(number))
  }

  /** The same without waiting: newer commits take the place of older ones that wait. */
  commitSoon (what) {
    call(() => this.#commit(what, {
      batch: (handle, end) => this.#native.commitBatchSoon(handle, end),
      offsets: (...places) => this.#native.commitOffsetsSoon(...places),
      all: () => this.#native.commitFinishedSoon()
    }))
  }

  /**
   * The program has finished its work on a record or a batch; with `acknowledgement: 'explicit'`,
   * where nothing else finishes it, in any order. Commits and `close` tell the group.
   */
  acknowledge (what) {
    const { data, start, end } = this.#placeOf(what)
    call(() => this.#native.acknowledge(data.handle, start, end))
  }

  /** Where records that this consumer has read stand. */
  #placeOf (what) {
    if (!(what instanceof ConsumerRecord || what instanceof Batch)) {
      throw errorOf('InvalidArgument', 'neither a record nor a batch that was read')
    }
    const place = what.constructor.placeOf(what)
    if (place.data.consumer !== this) {
      throw errorOf('InvalidArgument', 'the records were read by another consumer')
    }
    return place
  }

  #commit (what, { batch, offsets, all }) {
    if (what === undefined || what === null) {
      this.#reading.note()
      return all()
    }
    if (what instanceof ConsumerRecord || what instanceof Batch) {
      const { data, end } = this.#placeOf(what)
      return batch(data.handle, end)
    }
    const list = Array.isArray(what) ? what : [what]
    // Its offset is not the one to read on from, but that before.
    if (list.some((place) => place instanceof ConsumerRecord)) {
      throw errorOf('InvalidArgument', 'a list is one of offsets to read on from: commit the last record of each partition by itself')
    }
    const partitions = list.map(partitionPair)
    const places = BigInt64Array.from(list, (place) => offsetOf(place.offset))
    return offsets(partitions, places, list.map(besideOf))
  }

  /** What the group has committed for these partitions; null for none. */
  async committed (partitions, options = NO_OPTIONS) {
    const signal = checked(onlyKnown(options, WAIT).signal)
    const number = call(() => this.#native.committed(partitions.map(partitionPair)))
    const forget = () => this.#pump.forget(number)
    const { offsets } = await abortable(signal, this.#pump.call(number), forget)
    return Array.from(offsets, (offset) => offset < 0n ? null : offset)
  }

  /** The same with what stands beside each offset. */
  async committedWithMetadata (partitions, options = NO_OPTIONS) {
    const list = pairsOf(partitions)
    const { offsets, beside } = await this.#lookUp(options, (timeout) => (
      this.#native.committedWithMetadata(list, timeout)
    ))
    return Array.from(offsets, (offset, at) => {
      const [metadata, epoch] = beside[at]
      return offset < 0n ? null : { offset, metadata, leaderEpoch: epochOf(epoch) }
    })
  }

  /** The offset of the first record of each of these partitions. */
  async beginningOffsets (partitions, options = NO_OPTIONS) {
    const list = pairsOf(partitions)
    const { offsets } = await this.#lookUp(options, (timeout) => (
      this.#native.beginningOffsets(list, timeout)
    ))
    return Array.from(offsets)
  }

  /** The offset behind the last record of each of these partitions. */
  async endOffsets (partitions, options = NO_OPTIONS) {
    const list = pairsOf(partitions)
    const { offsets } = await this.#lookUp(options, (timeout) => (
      this.#native.endOffsets(list, timeout)
    ))
    return Array.from(offsets)
  }

  /** The first record of each of these partitions of its time or later; null for none. */
  async offsetsForTimes (times, options = NO_OPTIONS) {
    const list = pairsOf(times)
    const wanted = BigInt64Array.from(times, (place) => timeAt(place.timestamp))
    const { offsets, timestamps, epochs } = await this.#lookUp(options, (timeout) => (
      this.#native.offsetsForTimes(list, wanted, timeout)
    ))
    return Array.from(offsets, (offset, at) => {
      if (offset < 0n) return null
      return { offset, timestamp: Number(timestamps[at]), leaderEpoch: epochOf(epochs[at]) }
    })
  }

  /** Goes on with a partition so many records before its end; the offset at which that is. */
  async seekBeforeEnd (partition, records, options = NO_OPTIONS) {
    const [topic, number] = partitionPair(partition)
    const count = BigInt64Array.of(offsetOf(records, 'a number of records'))
    // In the turn in which it moves: nothing more of the batch under way is given after it.
    const moved = (row) => {
      this.#reading.recheck()
      return row
    }
    const { offsets } = await this.#lookUp(options, (timeout) => (
      this.#native.seekBeforeEnd(topic, number, count, timeout)
    ), moved)
    return offsets[0]
  }

  /** Starts a call with its time; what it found. */
  async #lookUp (options, start, before) {
    const signal = checked(onlyKnown(options, TIMED).signal)
    const timeout = millis('timeout', options.timeout, this.#native.apiTimeout)
    const number = call(() => start(timeout))
    return await abortable(signal, this.#pump.call(number, before), () => this.#pump.forget(number))
  }

  /** How many offsets lie between the next record to be given of a partition and its end. */
  currentLag (partition) {
    const [topic, number] = partitionPair(partition)
    const ahead = this.#reading.position(topic, number)
    const [lag] = call(() => this.#native.currentLag(topic, number))
    if (lag < 0n) return null
    if (ahead === undefined) return lag
    // The native half has given the whole batch.
    const [position] = call(() => this.#native.position(topic, number))
    return lag + position - ahead
  }

  /** Tells that the program lives while it works long on what it was given. */
  keepAlive () {
    call(() => this.#native.keepAlive())
  }

  /** The offset of the next record to be given of a partition; null while it is not known. */
  position (partition) {
    const [topic, number] = partitionPair(partition)
    const ahead = this.#reading.position(topic, number)
    if (ahead !== undefined) return ahead
    const [offset] = call(() => this.#native.position(topic, number))
    return offset < 0n ? null : offset
  }

  /** Goes on with a partition from an offset: it is that of the next record given. */
  seek (partition, offset) {
    const [topic, number] = partitionPair(partition)
    const place = BigInt64Array.of(offsetOf(offset ?? partition.offset))
    call(() => this.#native.seek(topic, number, place))
    this.#reading.recheck()
  }

  /** Gives no records of these partitions until they are resumed. */
  pause (partitions) {
    call(() => this.#native.pause(partitions.map(partitionPair)))
    this.#reading.recheck()
  }

  /** Gives records of these partitions again. */
  resume (partitions) {
    call(() => this.#native.resume(partitions.map(partitionPair)))
  }

  /** The partitions that are this consumer's now. */
  assignment () {
    const own = call(() => this.#native.assignment())
    return own.map(([topic, partition]) => ({ topic, partition }))
  }

  /** Commits what is finished, leaves the group, and ends. A loop over the records ends, too. */
  async close (options = NO_OPTIONS) {
    const timeout = millis('timeout', onlyKnown(options, CLOSE).timeout)
    this.#closing ??= this.#close(timeout)
    await this.#closing
  }

  [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')] () {
    return this.close()
  }

  async #close (timeout = this.#native.apiTimeout) {
    this.#reading.end()
    const number = call(() => this.#native.close(timeout))
    const closed = this.#pump.call(number)
    this.#reading.serve()
    await closed
  }

  #checkOpen () {
    if (this.#closing !== undefined) throw errorOf('Closed', 'the consumer is closed')
  }
}

function partitionPair (place) {
  if (typeof place?.topic !== 'string') {
    throw new TypeError('a partition is given as { topic, partition }')
  }
  if (place.partition === undefined) throw new TypeError('a partition has a number')
  return [place.topic, partitionOf(place.partition)]
}

/** A list of partitions. */
function pairsOf (partitions) {
  if (!Array.isArray(partitions)) throw new TypeError('partitions are given as a list')
  return partitions.map(partitionPair)
}

/** What is committed beside an offset: a text, and a leader epoch or −1. */
function besideOf ({ metadata, leaderEpoch }) {
  if (metadata !== undefined && metadata !== null && typeof metadata !== 'string') {
    throw new TypeError('metadata is a string')
  }
  return [metadata ?? '', whole('leaderEpoch', leaderEpoch, 0, -1)]
}

/** −1 is not known. */
function epochOf (epoch) {
  return epoch < 0 ? null : epoch
}

/** A time as a bigint. */
function timeAt (timestamp) {
  if (timestamp === undefined || timestamp === null) {
    throw new TypeError('a time is given as { topic, partition, timestamp }')
  }
  return BigInt(timeOf(timestamp))
}

/** An offset as a bigint: others do not reach as far. */
function offsetOf (offset, what = 'an offset') {
  if (typeof offset === 'bigint' && offset >= 0n && offset < 1n << 63n) return offset
  if (Number.isSafeInteger(offset) && offset >= 0) return BigInt(offset)
  throw new TypeError(`${what} is a bigint or a whole number from 0 on, not ${String(offset)}`)
}

module.exports = { Consumer }
