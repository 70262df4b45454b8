'use strict'

const { Batch, BatchData, ConsumerRecord } = require('./record')
const { TIMER_MAX } = require('./config')
const { call, errorOf } = require('./error')

/** Records given between two looks at whether their partition is still ours. */
const RECORDS_A_LOOK = 64
/** Most that a loop which never waits is given before the process's other work has its turn. */
const TURN_MS = 5
const TURN_BYTES = 4 * 1024 * 1024
/** Most that wait for a record at once: more come of a program that asks and does not await. */
const WAITING_MAX = 1024

/**
 * Who reads, in order, and the batch that is being given out record by record.
 *
 * The native half gives whole batches. It is told now and then how far the program is, which is
 * what automatic commits and the group's patience go by.
 */
class Reading {
  #consumer
  #pump
  #native
  #waiting = []
  /** The batch taken last, and how many of its records were given and are finished. */
  #data
  #given = 0
  #finished = 0
  #sinceLook = 0
  #lookedAt = 0
  /** What was given since the loop's last turn. */
  #turn

  constructor (consumer, pump) {
    this.#consumer = consumer
    this.#pump = pump
    this.#native = pump.native
  }

  /**
   * The next record, or with `records` the next batch of so many at most. Undefined if the time is
   * over before.
   */
  next ({ records, timeout = Infinity, signal }) {
    signal?.throwIfAborted()
    if (this.#waiting.length === 0) {
      const given = this.#give(records)
      if (given !== undefined) return given
      if (timeout === 0 && this.#turn?.over !== true) return this.#last(records)
    }
    if (this.#waiting.length >= WAITING_MAX) {
      throw errorOf('InvalidState', `${WAITING_MAX} polls of this consumer wait already: await them first`)
    }
    return new Promise((resolve, reject) => this.#wait({ records, timeout, signal, resolve, reject }))
  }

  #wait ({ records, timeout, signal, resolve, reject }) {
    let timer
    const waiter = { records, done: undefined }
    const leave = () => {
      this.#waiting.splice(this.#waiting.indexOf(waiter), 1)
      waiter.done()
    }
    const abort = () => {
      leave()
      reject(signal.reason)
    }
    const late = () => {
      const first = this.#waiting[0] === waiter
      leave()
      try {
        resolve(first ? this.#last(records) : undefined)
      } catch (error) {
        reject(error)
      }
    }
    waiter.done = () => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', abort)
      this.#pump.release()
    }
    waiter.resolve = resolve
    waiter.reject = reject
    this.#waiting.push(waiter)
    this.#pump.retain()
    signal?.addEventListener('abort', abort, { once: true })
    if (timeout <= TIMER_MAX) timer = setTimeout(late, timeout)
  }

  /** Gives those who wait what there is. */
  serve () {
    while (this.#waiting.length > 0) {
      const [waiter] = this.#waiting
      let given
      try {
        given = this.#give(waiter.records)
        if (given === undefined) return
      } catch (error) {
        this.#waiting.shift()
        waiter.done()
        waiter.reject(error)
        continue
      }
      this.#waiting.shift()
      waiter.done()
      waiter.resolve(given)
    }
  }

  /** What is ready; undefined if nothing is, or others shall have their turn first. */
  #give (records) {
    // Who asks for the next is through with what it had.
    this.#finished = this.#given
    if (this.#data !== undefined && this.#given < this.#data.length) {
      if (this.#turn?.over === true) return undefined
      if (this.#mayGoOn(records ?? 1)) return this.#cut(records)
    }
    if (this.#isOver()) return undefined
    this.note()
    this.#data = undefined
    return this.#begin(call(() => this.#native.take()), records)
  }

  /** The same at the end of a call's time: throws if there is a reason why nothing came. */
  #last (records) {
    const left = this.#data !== undefined && this.#given < this.#data.length
    if (left && this.recheck(records ?? 1)) return this.#cut(records)
    this.note()
    this.#data = undefined
    return this.#begin(call(() => this.#native.takeLast()), records)
  }

  #begin (taken, records) {
    if (taken === null || taken === undefined) return undefined
    this.#data = new BatchData(taken, this.#consumer)
    this.#given = 0
    this.#finished = 0
    this.#sinceLook = 0
    this.#count(this.#data.bytes)
    return this.#cut(records)
  }

  #cut (records) {
    const data = this.#data
    const from = this.#given
    if (records === undefined) {
      this.#given = from + 1
      return new ConsumerRecord(data, from)
    }
    this.#given = Math.min(data.length, from + records)
    return new Batch(data, from, this.#given)
  }

  /** Whether the batch may be given on; now and then the native half is asked. */
  #mayGoOn (next) {
    const now = Date.now()
    if (++this.#sinceLook < RECORDS_A_LOOK && now === this.#lookedAt) return true
    this.#sinceLook = 0
    this.#lookedAt = now
    this.#count(0)
    return this.recheck(next)
  }

  /**
   * Gives the rest of the batch back if its partition was revoked, moved or paused. `next` records
   * of it are about to be given.
   */
  recheck (next = 0) {
    if (this.#data === undefined) return false
    if (this.note(next)) return true
    const { handle } = this.#data
    this.#data = undefined
    call(() => this.#native.giveBack(handle, this.#given))
    return false
  }

  /** Tells how far the program is; whether it may go on. */
  note (next = 0) {
    const data = this.#data
    if (data === undefined) return false
    const given = Math.min(this.#given + next, data.length)
    return call(() => this.#native.progress(data.handle, this.#finished, given))
  }

  /** Gives nothing more of what was taken. */
  end () {
    this.note()
    this.#data = undefined
  }

  /** The offset of the next record to be given, if it is of the batch that is being given out. */
  position (topic, partition) {
    const data = this.#data
    const inside = data?.topic === topic && data.partition === partition
    return inside && this.#given < data.length && this.note() ? data.offsets[this.#given] : undefined
  }

  /** Counts what is given in this turn of the loop. */
  #count (bytes) {
    if (this.#turn === undefined) {
      this.#turn = { bytes: 0, start: performance.now(), over: false }
      setImmediate(() => {
        this.#turn = undefined
        this.serve()
      })
    }
    this.#turn.bytes += bytes
    this.#isOver()
  }

  #isOver () {
    const turn = this.#turn
    if (turn === undefined) return false
    turn.over ||= turn.bytes > TURN_BYTES || performance.now() - turn.start > TURN_MS
    return turn.over
  }
}

module.exports = { Reading }
