'use strict'

const { types } = require('node:util')
const { errorOf } = require('./error')

// Records as numbers and bytes, which cross the border once for many of them. The native half of
// this form is in src/record.rs.

/** Numbers of a record before those of its headers. */
const RECORD_NUMBERS = 6
/** What is kept between two uses. */
const KEPT_NUMBERS = 8 * 1024
const KEPT_BYTES = 256 * 1024
/** A value from this size on is not packed but handed over as it is. */
const LARGE = 32 * 1024
/** Most bytes in one part: Kafka's lengths have 32 bits, and so have the numbers here. */
const PART_BYTES_MAX = 0x7fffffff

class Packer {
  numbers = new Int32Array(KEPT_NUMBERS)
  bytes = Buffer.allocUnsafeSlow(KEPT_BYTES)
  #number = 0
  #byte = 0

  /** Forgets all records. */
  clear () {
    this.#number = 0
    this.#byte = 0
    if (this.numbers.length > KEPT_NUMBERS) this.numbers = new Int32Array(KEPT_NUMBERS)
    if (this.bytes.length > KEPT_BYTES) this.bytes = Buffer.allocUnsafeSlow(KEPT_BYTES)
  }

  /** Whether it is time to hand over what is packed. */
  get full () {
    return this.#byte > KEPT_BYTES / 2 || this.#number > KEPT_NUMBERS / 2
  }

  /** Only what is packed, for those who keep it. */
  get usedNumbers () {
    return this.numbers.subarray(0, this.#number)
  }

  get usedBytes () {
    return this.bytes.subarray(0, this.#byte)
  }

  /** Packs a record; one that is refused leaves no trace. */
  add (key, value, headers, partition, timestamp) {
    const [number, byte] = [this.#number, this.#byte]
    try {
      this.#add(key, value, headers, partition, timestamp)
    } catch (refused) {
      this.#number = number
      this.#byte = byte
      throw refused
    }
  }

  #add (key, value, headers, partition, timestamp) {
    const at = this.#number
    this.#reserveNumbers(RECORD_NUMBERS)
    this.numbers[at] = this.#put(key, 'a key')
    this.numbers[at + 1] = this.#put(value, 'a value')
    // Before its place is looked up: the numbers move when they grow.
    const count = headers === undefined || headers === null ? 0 : this.#putHeaders(headers)
    this.numbers[at + 2] = count
    this.numbers[at + 3] = partitionOf(partition)
    this.#putTime(at + 4, timestamp)
  }

  #putTime (at, timestamp) {
    const { numbers } = this
    const time = timeOf(timestamp)
    if (typeof time === 'bigint') {
      numbers[at] = Number(BigInt.asIntN(32, time))
      numbers[at + 1] = Number(time >> 32n)
    } else {
      numbers[at] = time
      numbers[at + 1] = Math.floor(time / 0x100000000)
    }
  }

  #putHeaders (headers) {
    if (typeof headers !== 'object') {
      throw new TypeError('headers are an object, or entries of name and value')
    }
    let count = 0
    if (typeof headers[Symbol.iterator] === 'function') {
      for (const entry of headers) {
        if (!Array.isArray(entry)) throw new TypeError('a header is an entry of name and value')
        this.#putHeader(entry[0], entry[1])
        count++
      }
    } else {
      for (const name of Object.keys(headers)) {
        this.#putHeader(name, headers[name])
        count++
      }
    }
    return count
  }

  #putHeader (name, value) {
    if (typeof name !== 'string') throw new TypeError('the name of a header is a string')
    const at = this.#number
    this.#reserveNumbers(2)
    this.numbers[at] = this.#put(name, 'the name of a header')
    this.numbers[at + 1] = this.#put(value, 'the value of a header')
  }

  /** Its length; −1 for null. */
  #put (part, what) {
    if (part === undefined || part === null) return -1
    if (typeof part === 'string') return this.#putString(part, what)
    if (!isBytes(part)) {
      const kind = typeof part === 'object' ? part.constructor?.name ?? 'object' : typeof part
      throw new TypeError(`${what} is a string, a Buffer, a Uint8Array or null, not ${kind}`)
    }
    if (part.length > PART_BYTES_MAX) {
      throw errorOf('RecordTooLarge', `${what} has ${part.length} bytes: more than any record`)
    }
    this.#reserveBytes(part.length)
    this.bytes.set(part, this.#byte)
    this.#byte += part.length
    return part.length
  }

  #putString (part, what) {
    const { length } = part
    const start = this.#byte
    if (length < 32) {
      this.#reserveBytes(length)
      const { bytes } = this
      let at = 0
      for (; at < length; at++) {
        const letter = part.charCodeAt(at)
        if (letter > 0x7f) break
        bytes[start + at] = letter
      }
      if (at === length) {
        this.#byte = start + length
        return length
      }
    }
    if (!part.isWellFormed()) {
      throw new TypeError(`${what} has half of a surrogate pair, which is no text`)
    }
    this.#reserveBytes(length < LARGE ? length * 3 : Buffer.byteLength(part))
    const written = this.bytes.write(part, start)
    this.#byte = start + written
    return written
  }

  #reserveBytes (length) {
    if (this.#byte + length <= this.bytes.length) return
    const more = Buffer.allocUnsafeSlow(Math.max(this.bytes.length * 2, this.#byte + length))
    more.set(this.usedBytes)
    this.bytes = more
  }

  #reserveNumbers (length) {
    this.#number += length
    if (this.#number <= this.numbers.length) return
    const more = new Int32Array(this.numbers.length * 2)
    more.set(this.numbers)
    this.numbers = more
  }
}

function isBytes (part) {
  // Also those of another realm, such as a test runner's.
  return part instanceof Uint8Array || types.isUint8Array(part)
}

let spare = new Packer()

/**
 * A packer, empty, until it is put back. Between packing and handing over a program may be called
 * (a getter, an iterator), and send by itself: it gets another one.
 */
function takePacker () {
  const packer = spare ?? new Packer()
  spare = undefined
  packer.clear()
  return packer
}

function putBackPacker (packer) {
  spare = packer
}

/** −1 lets the partitioner choose. */
function partitionOf (partition) {
  if (partition === undefined || partition === null) return -1
  if (!Number.isInteger(partition) || partition < 0 || partition > 0x7fffffff) {
    throw new TypeError(`a partition is a whole number from 0 on, not ${String(partition)}`)
  }
  return partition
}

/** −1 is the time of the call; all others are milliseconds since 1970. */
function timeOf (timestamp) {
  if (timestamp === undefined || timestamp === null) return -1
  const time = types.isDate(timestamp) ? timestamp.getTime() : timestamp
  if (typeof time === 'bigint' && time >= 0n && time < 1n << 63n) return time
  if (Number.isSafeInteger(time) && time >= 0) return time
  const takes = 'a timestamp is a Date, or whole milliseconds since 1970 as a number or a bigint'
  throw new TypeError(`${takes}, not ${typeof time === 'string' ? `"${time}"` : String(time)}`)
}

/** A value that is handed over as it is, if it is so large; else undefined. */
function largeValue (value) {
  if (typeof value === 'string') {
    if (value.length < LARGE) return undefined
    if (!value.isWellFormed()) {
      throw new TypeError('a value has half of a surrogate pair, which is no text')
    }
    return Buffer.from(value)
  }
  if (!isBytes(value) || value.length < LARGE) return undefined
  // Other threads may write to shared memory while it is read.
  const shared = typeof SharedArrayBuffer === 'function' && value.buffer instanceof SharedArrayBuffer
  return shared ? Buffer.from(value) : value
}

module.exports = { takePacker, putBackPacker, isBytes, largeValue, partitionOf, timeOf }
