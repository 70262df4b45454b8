// Compiled, never run: the same types by `require`.
import ottla = require('ottla')

export const producer = new ottla.Producer({ 'bootstrap.servers': 'localhost:9092', 'linger.ms': 5 })
export const failed = (error: unknown): boolean => error instanceof ottla.OttlaError && error.retriable
