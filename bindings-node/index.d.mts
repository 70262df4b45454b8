import * as ottla from './index.js'

export * from './index.js'
export default ottla
