'use strict'

/** Where a record has arrived. */
class Delivery {
  constructor (topic, partition, offset, timestamp) {
    this.topic = topic
    this.partition = partition
    this.offset = offset
    this.timestamp = timestamp
  }

  /** JSON has no bigint: the offset is a string there. */
  toJSON () {
    return { ...this, offset: String(this.offset) }
  }
}

/** What became of each record of a sendMany. */
class SendReport {
  constructor (topic, columns, errors) {
    this.topic = topic
    this.partitions = columns.partitions
    this.offsets = columns.offsets
    this.timestamps = columns.timestamps
    this.errors = errors
  }

  /** How many records there were. */
  get length () {
    return this.offsets.length
  }

  /** Whether all are delivered. */
  get ok () {
    return this.errors.size === 0
  }

  /** Where a record has arrived. Throws why it has not. */
  get (row) {
    if (!(row in this.offsets)) throw new RangeError(`there is no record ${row}`)
    if (this.errors.has(row)) throw this.errors.get(row)
    const time = Number(this.timestamps[row])
    return new Delivery(this.topic, this.partitions[row], this.offsets[row], time)
  }

  toJSON () {
    const { topic, partitions, errors } = this
    return {
      topic,
      partitions: Array.from(partitions),
      offsets: Array.from(this.offsets, String),
      timestamps: Array.from(this.timestamps, Number),
      errors: Array.from(errors, ([row, error]) => ({ row, code: error.code, message: error.message }))
    }
  }
}

module.exports = { Delivery, SendReport }
