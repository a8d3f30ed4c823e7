// Package sim runs the lock's real engine through histories that never happened:
// two to five clients on a simulated store, in simulated time, where requests
// are lost, late, doubled or refused, clocks are wrong, and processes stop or
// die at the worst moment. One seed decides a whole history, and the same seed
// gives the same one again.
//
// It runs in a testing/synctest bubble, whose time passes only when all
// goroutines wait. The bubble doesn't order what happens at the same time; so nothing does:
// each request's delays come from a hash of the seed and of what is requested, and
// are different from those of any other down to the nanosecond. What a
// goroutine draws depends on what it draws for and when, not on which came first.
//
// What is asserted, at every request: see monitor. What a history is made of:
// see plan. The engine isn't told that it is simulated: it has a store, a clock
// and a source of randomness, as always.
package sim
