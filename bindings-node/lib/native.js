'use strict'

// The native half. It is part of the package: nothing is downloaded or compiled at installation.

const TARGET = 'linux-x64-gnu'

function load () {
  try {
    // A literal path, so that bundlers see it.
    return require('../ottla.linux-x64-gnu.node')
  } catch (cause) {
    const here = `${process.platform}-${process.arch}`
    if (cause.code === 'ERR_DLOPEN_FAILED' || here !== 'linux-x64') {
      const text = `ottla is built for ${TARGET}, and cannot be loaded here (${here})`
      throw new Error(`${text}: ${cause.message}`, { cause })
    }
    throw cause
  }
}

module.exports = load()
