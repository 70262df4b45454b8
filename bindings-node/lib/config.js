'use strict'

const { errorOf } = require('./error')

/** Longest time of a timer of Node's; what is longer is as good as no limit. */
const TIMER_MAX = 0x7fffffff

/** Options of calls that wait, of those that wait for a time, and of those that end a client. */
const WAIT = new Set(['signal'])
const TIMED = new Set(['timeout', 'signal'])
const CLOSE = new Set(['timeout'])

/** How a value stands in the table of options, which checks it. */
function text (name, value) {
  switch (typeof value) {
    case 'string':
      return value
    case 'number':
    case 'boolean':
    case 'bigint':
      return String(value)
  }
  if (Array.isArray(value) && value.every((part) => typeof part === 'string')) {
    return value.join(',')
  }
  const kind = Array.isArray(value) ? 'a list of other things' : typeof value
  const takes = 'takes a string, a number, a boolean or a list of strings'
  throw errorOf('InvalidOption', `\`${name}\` ${takes}, not ${kind}`)
}

/**
 * Options as names and texts, but those in `own`, which JavaScript itself heeds.
 * What is undefined or null is left at its default.
 */
function pairs (options, own = []) {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw errorOf('InvalidOption', 'options are given as an object: { bootstrapServers: ... }')
  }
  const set = Object.entries(options).filter(([name, value]) => value != null && !own.includes(name))
  return set.map(([name, value]) => [name, text(name, value)])
}

/** Options that Kafka's broker takes, whose names are dotted: numPartitions → num.partitions. */
function brokerPairs (options, own) {
  const dotted = (name) => name.replace(/[A-Z]/g, (letter) => `.${letter.toLowerCase()}`)
  return pairs(options, own).map(([name, value]) => [dotted(name).replaceAll('_', '.'), value])
}

/**
 * The options of a call, as an object, with names out of `known` alone. What was passed over would be
 * lost: a bare number or a misspelt `timeout` makes a wait without an end, a misspelt `key` a record
 * without one.
 */
function onlyKnown (options, known) {
  if (typeof options !== 'object' || options === null) {
    throw new TypeError(`options are given as an object, such as { timeout: 1000 }, not ${String(options)}`)
  }
  for (const name in options) {
    if (!known.has(name) && options[name] !== undefined) {
      throw new TypeError(`there is no \`${name}\` here, but ${Array.from(known).join(', ')}`)
    }
  }
  return options
}

/** A time in milliseconds; undefined is no limit, or the default. */
function millis (name, time, otherwise) {
  if (time === undefined || time === null) return otherwise
  if (typeof time !== 'number' || Number.isNaN(time) || time < 0) {
    throw new TypeError(`${name} is a number of milliseconds from 0 on, not ${String(time)}`)
  }
  return time
}

/** A whole number from `least` on. */
function whole (name, number, least, otherwise) {
  if (number === undefined || number === null) return otherwise
  if (!Number.isInteger(number) || number < least || number > 0x7fffffff) {
    throw new TypeError(`${name} is a whole number from ${least} on, not ${String(number)}`)
  }
  return number
}

module.exports = { TIMER_MAX, WAIT, TIMED, CLOSE, pairs, brokerPairs, onlyKnown, millis, whole }
