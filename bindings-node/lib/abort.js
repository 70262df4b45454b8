'use strict'

/** A signal, if one is given. Throws its reason if it is aborted already. */
function checked (signal) {
  if (signal === undefined || signal === null) return undefined
  if (typeof signal.addEventListener !== 'function' || typeof signal.aborted !== 'boolean') {
    throw new TypeError('signal is an AbortSignal')
  }
  if (signal.aborted) throw signal.reason
  return signal
}

/** The promise, or a rejection with the signal's reason if that is aborted first. */
function abortable (signal, promise, cancel) {
  if (signal === undefined) return promise
  return new Promise((resolve, reject) => {
    const abort = () => {
      cancel?.()
      reject(signal.reason)
    }
    const settled = (settle) => (outcome) => {
      signal.removeEventListener('abort', abort)
      settle(outcome)
    }
    signal.addEventListener('abort', abort, { once: true })
    promise.then(settled(resolve), settled(reject))
  })
}

module.exports = { checked, abortable }
