// The words of turns.cu: what they begin as, and what rounds make of them.
#pragma once
#ifndef __CUDACC__
#define __host__
#define __device__
#endif

typedef unsigned long long word;

static const word FACTOR = 0xd1342543de82ef95ull; // 1 modulo 4, so that with an odd addend every word changes in every round

__host__ __device__ inline word mixed(word x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

__host__ __device__ inline word first_word(word seed, word place)
{
    return mixed((place + 1) * 0x9e3779b97f4a7c15ull + mixed(seed));
}

__host__ __device__ inline word addend(word place)
{
    return place * 0xa0761d6478bd642full << 1 | 1;
}

// Many rounds at once: factor*x + sum*c.
struct Rounds {
    word factor, sum;

    __host__ __device__ word of(word x, word place) const { return factor * x + sum * addend(place); }

    static Rounds in_all(word count)
    {
        Rounds all = {1, 0}, twice = {FACTOR, 1};
        for (; count; count >>= 1) {
            if (count & 1) all = {twice.factor * all.factor, twice.factor * all.sum + twice.sum};
            twice = {twice.factor * twice.factor, twice.factor * twice.sum + twice.sum};
        }
        return all;
    }
};
