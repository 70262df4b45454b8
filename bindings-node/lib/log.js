'use strict'

const { channel } = require('node:diagnostics_channel')
const { debuglog } = require('node:util')
const { startLog, takeLog } = require('./native')
const { call } = require('./error')

// Log lines of the core go where Node's own go: to stderr with NODE_DEBUG=ottla, and to those who
// subscribed to the diagnostics channel `ottla:log` before their first client. Else to nobody.

const INFO = 3
const DEBUG = 4

const lines = channel('ottla:log')
const debug = debuglog('ottla')
let level = 0

function hand () {
  const taken = call(() => takeLog())
  for (let at = 0; at < taken.length; at += 3) {
    const line = { level: taken[at], target: taken[at + 1], message: taken[at + 2] }
    debug('%s %s', line.level, line.message)
    if (lines.hasSubscribers) lines.publish(line)
  }
}

/** Called by each new client: begins to hand lines on once somebody wants them. */
function wantLog () {
  const wanted = debug.enabled ? DEBUG : lines.hasSubscribers ? INFO : 0
  if (wanted <= level) return
  // Lines keep no process alive: what is left is handed on at its end.
  if (level === 0) process.on('exit', hand)
  level = wanted
  call(() => startLog(level, hand))
}

module.exports = { wantLog }
