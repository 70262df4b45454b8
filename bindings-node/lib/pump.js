'use strict'

const { toError } = require('./error')

// Pumps that wait for something: their clients must not be collected meanwhile.
const held = new Set()

/** Longest time that settling takes at a stretch; then the loop gets its turn. */
const TURN_MS = 5

/**
 * What all clients share: the bell that the native half rings, the promises of calls under way, and
 * whether the process is kept alive.
 */
class Pump {
  #native
  #drain
  #calls = new Map()
  #pending = 0
  #turning = false
  #again = false

  /**
   * `make(bell)` makes the native half. `drain(pump)` takes news from it, and tells whether there
   * are more.
   */
  constructor (make, drain) {
    // Weakly, since the native half keeps the bell for as long as it lives itself.
    const weak = new WeakRef(this)
    this.#native = make(() => weak.deref()?.turn())
    this.#drain = drain
  }

  get native () {
    return this.#native
  }

  /** Something is waited for: the process stays alive. */
  retain () {
    if (this.#pending++ === 0) {
      held.add(this)
      this.#native.hold(true)
    }
  }

  /** One thing less is. */
  release () {
    if (--this.#pending === 0) {
      held.delete(this)
      this.#native.hold(false)
    }
  }

  /**
   * The promise of a call of the native half, given its number. It keeps the process alive.
   * `before` makes what it resolves with, in the turn in which the call's end is told.
   */
  call (number, before) {
    this.retain()
    return this.#started(number, before, true)
  }

  /** The same for a call that keeps no process alive. */
  background (number) {
    return this.#started(number, undefined, false)
  }

  #started (number, before, release) {
    const promise = new Promise((resolve, reject) => {
      this.#calls.set(number, { resolve, reject, before, release })
    })
    this.turn()
    return promise
  }

  /** Nobody waits for that call any more. */
  forget (number) {
    const known = this.#calls.get(number)
    if (known === undefined) return
    this.#calls.delete(number)
    this.#native.forget(number)
    if (known.release) this.release()
  }

  /** Settles promises of calls that have ended. */
  settle (ended) {
    if (ended === undefined || ended === null) return
    for (const row of ended) {
      const known = this.#calls.get(row.number)
      if (known === undefined) continue
      this.#calls.delete(row.number)
      if (row.error === undefined) {
        known.resolve(known.before === undefined ? row : known.before(row))
      } else {
        known.reject(toError(row.error))
      }
      if (known.release) this.release()
    }
  }

  /** Looks at what there is, and goes on after the loop's turn if that takes long. */
  turn () {
    if (this.#turning) {
      this.#again = true
      return
    }
    this.#turning = true
    const start = performance.now()
    try {
      let more
      do {
        this.#again = false
        more = this.#drain(this) || this.#again
      } while (more && performance.now() - start < TURN_MS)
      if (more) setImmediate(() => this.turn())
    } finally {
      this.#turning = false
    }
  }
}

module.exports = { Pump }
