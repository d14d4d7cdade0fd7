module example.com/carya-rank

go 1.19
