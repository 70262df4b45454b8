'use strict'

const { inspect } = require('node:util')

// Records as a consumer gives them. A batch is memory and the places of its records in it; a record
// is a batch and a number, and makes what it is asked for. The native half is in src/record.rs.

/** Numbers of a record's places: buffer, key, value, headers. */
const ROW_NUMBERS = 8
const KEY = 1
const VALUE = 3
const HEADERS = 5

/** What the records of one batch share. */
class BatchData {
  constructor (taken, consumer) {
    this.topic = taken.topic
    this.partition = taken.partition
    this.highWatermark = taken.highWatermark
    this.buffers = taken.buffers
    this.rows = taken.rows
    this.offsets = taken.offsets
    this.timestamps = taken.timestamps
    this.handle = taken.handle
    this.consumer = consumer
  }

  get length () {
    return this.offsets.length
  }

  /** Bytes of it that JavaScript holds. */
  get bytes () {
    return this.buffers.reduce((sum, buffer) => sum + buffer.length, this.rows.byteLength)
  }

  part (index, which) {
    const { rows } = this
    const row = index * ROW_NUMBERS
    const length = rows[row + which + 1]
    if (length < 0) return null
    const start = rows[row + which]
    return this.buffers[rows[row]].subarray(start, start + length)
  }

  headers (index) {
    const count = this.rows[index * ROW_NUMBERS + HEADERS + 2]
    return count === 0 ? NO_HEADERS : new Headers(readHeaders(this.part(index, HEADERS), count))
  }
}

/** Entries of name and value, from the form in which they lie in a record batch. */
function readHeaders (bytes, count) {
  const entries = []
  let at = 0
  const length = () => {
    let [bits, shift, byte] = [0, 0, 0]
    do {
      byte = bytes[at++]
      bits |= (byte & 0x7f) << shift
      shift += 7
    } while (byte > 0x7f)
    return (bits >>> 1) ^ -(bits & 1)
  }
  for (let header = 0; header < count; header++) {
    const nameLength = length()
    const name = bytes.toString('utf8', at, at + nameLength)
    at += nameLength
    const valueLength = length()
    entries.push([name, valueLength < 0 ? null : bytes.subarray(at, at + valueLength)])
    at += Math.max(valueLength, 0)
  }
  return entries
}

/** A record's headers in order: a name may come more than once, a value may be null. */
class Headers {
  #entries

  constructor (entries) {
    this.#entries = entries
  }

  get size () {
    return this.#entries.length
  }

  /** The value of the last header of that name; undefined if there is none. */
  get (name) {
    return this.#entries.findLast(([known]) => known === name)?.[1]
  }

  /** The values of all headers of that name, in order. */
  getAll (name) {
    return this.#entries.filter(([known]) => known === name).map(([, value]) => value)
  }

  has (name) {
    return this.#entries.some(([known]) => known === name)
  }

  entries () {
    return this.#entries.map(([name, value]) => [name, value])
  }

  [Symbol.iterator] () {
    return this.entries()[Symbol.iterator]()
  }

  toJSON () {
    return this.entries()
  }

  [inspect.custom] (depth, options) {
    return `Headers ${inspect(this.#entries, options)}`
  }
}

const NO_HEADERS = new Headers([])

/** One record. Its key, value and headers are made when they are asked for. */
class ConsumerRecord {
  #data
  #index

  constructor (data, index) {
    this.#data = data
    this.#index = index
  }

  get topic () {
    return this.#data.topic
  }

  get partition () {
    return this.#data.partition
  }

  get offset () {
    return this.#data.offsets[this.#index]
  }

  /** Milliseconds since 1970. Above 2^53 it is rounded: `exactTimestamp` is not. */
  get timestamp () {
    return Number(this.#data.timestamps[this.#index])
  }

  get exactTimestamp () {
    return this.#data.timestamps[this.#index]
  }

  /** A Buffer on the memory of the record's batch; null is null, which is not empty. */
  get key () {
    return this.#data.part(this.#index, KEY)
  }

  get value () {
    return this.#data.part(this.#index, VALUE)
  }

  get headers () {
    return this.#data.headers(this.#index)
  }

  /** Commits this record and all before it in its partition. */
  commit (options) {
    return this.#data.consumer.commit(this, options)
  }

  toJSON () {
    const { topic, partition, timestamp, key, value, headers } = this
    const offset = String(this.offset)
    return { topic, partition, offset, timestamp, key, value, headers: headers.toJSON() }
  }

  [inspect.custom] (depth, options) {
    const { topic, partition, offset, timestamp, key, value, headers } = this
    const shown = { topic, partition, offset, timestamp, key, value, headers }
    return `ConsumerRecord ${inspect(shown, options)}`
  }

  /** Which batch, and up to which of its records: for the consumer. */
  static placeOf (record) {
    return { data: record.#data, start: record.#index, end: record.#index + 1 }
  }
}

/** Records of one partition, in the order of their offsets. */
class Batch {
  #data
  #from
  #to

  constructor (data, from, to) {
    this.#data = data
    this.#from = from
    this.#to = to
  }

  get topic () {
    return this.#data.topic
  }

  get partition () {
    return this.#data.partition
  }

  /** How many records it has: one at least. */
  get length () {
    return this.#to - this.#from
  }

  get baseOffset () {
    return this.#data.offsets[this.#from]
  }

  get lastOffset () {
    return this.#data.offsets[this.#to - 1]
  }

  /** The end of what could be read of the partition when this was fetched. */
  get highWatermark () {
    return this.#data.highWatermark
  }

  /** The record at `index`; undefined past the end. */
  get (index) {
    const at = this.#from + index
    const inside = Number.isInteger(index) && index >= 0 && at < this.#to
    return inside ? new ConsumerRecord(this.#data, at) : undefined
  }

  * [Symbol.iterator] () {
    for (let at = this.#from; at < this.#to; at++) yield new ConsumerRecord(this.#data, at)
  }

  get offsets () {
    return this.#data.offsets.subarray(this.#from, this.#to)
  }

  get timestamps () {
    return this.#data.timestamps.subarray(this.#from, this.#to)
  }

  keys () {
    return this.#column(KEY)
  }

  values () {
    return this.#column(VALUE)
  }

  /** All columns at once. */
  toColumns () {
    const { offsets, timestamps } = this
    return { offsets, timestamps, keys: this.keys(), values: this.values() }
  }

  #column (which) {
    const column = new Array(this.length)
    for (let at = this.#from; at < this.#to; at++) {
      column[at - this.#from] = this.#data.part(at, which)
    }
    return column
  }

  /** Commits this batch and all before it in its partition. */
  commit (options) {
    return this.#data.consumer.commit(this, options)
  }

  toJSON () {
    const { topic, partition } = this
    return { topic, partition, records: Array.from(this, (record) => record.toJSON()) }
  }

  [inspect.custom] () {
    const { topic, partition, length, baseOffset, lastOffset } = this
    const offsets = `offsets ${baseOffset} to ${lastOffset}`
    return `Batch { ${topic}-${partition}, ${length} records, ${offsets} }`
  }

  static placeOf (batch) {
    return { data: batch.#data, start: batch.#from, end: batch.#to }
  }
}

module.exports = { Batch, BatchData, ConsumerRecord, Headers }
