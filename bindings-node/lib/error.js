'use strict'

const { describeError } = require('./native')

const FACTS = ['kafkaCode', 'outcome', 'topic', 'partition', 'broker', 'api', 'attempt', 'hint']

/** What every error of this package is. */
class OttlaError extends Error {
  constructor (facts) {
    super(facts.message)
    this.code = facts.code
    this.retriable = facts.retriable
    this.maybeStored = facts.maybeStored
    for (const name of FACTS) {
      if (facts[name] !== undefined) this[name] = facts[name]
    }
  }
}

/** Try again: the cause may pass. */
class RetriableError extends OttlaError {}
/** Give up what was begun, then go on with the client. */
class AbortableError extends OttlaError {}
/** The client is of no more use, or the cluster will not take it as it is. */
class FatalError extends OttlaError {}
/** The call was wrong, and will be wrong again. */
class UsageError extends OttlaError {}

const CLASSES = {
  Retriable: RetriableError,
  Abortable: AbortableError,
  Fatal: FatalError,
  Usage: UsageError
}

for (const made of [OttlaError, ...Object.values(CLASSES)]) {
  Object.defineProperty(made.prototype, 'name', {
    value: made.name, configurable: true, writable: true
  })
}

/** The error of what the native half threw: facts. All else is left as it is. */
function toError (facts) {
  if (facts === null || typeof facts !== 'object' || !('maybeStored' in facts)) return facts
  if (facts instanceof Error) return facts
  const made = CLASSES[facts.class] ?? OttlaError
  return new made(facts)
}

/** An error of that kind. */
function errorOf (kind, message) {
  return toError(describeError(kind, message))
}

/** Runs a call of the native half. */
function call (body) {
  try {
    return body()
  } catch (facts) {
    throw toError(facts)
  }
}

module.exports = {
  OttlaError, RetriableError, AbortableError, FatalError, UsageError, toError, errorOf, call
}
