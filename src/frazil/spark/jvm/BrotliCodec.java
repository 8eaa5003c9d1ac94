package org.apache.hadoop.io.compress;

import com.aayushatharva.brotli4j.Brotli4jLoader;
import com.aayushatharva.brotli4j.decoder.BrotliInputStream;
import com.aayushatharva.brotli4j.encoder.Encoder;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.conf.Configured;

/**
 * Brotli for Parquet, which looks for a codec of exactly this name; neither Hadoop, Spark nor Iceberg ship one.
 *
 * <p>A page is compressed in one call when its stream is finished. Iceberg's {@code write.parquet.compression-level} arrives
 * as {@code compression.brotli.quality}.
 */
public final class BrotliCodec extends Configured implements CompressionCodec {
  private static final String QUALITY = "compression.brotli.quality";
  private static final int DEFAULT_QUALITY = 5;

  public BrotliCodec() {
    super(new Configuration(false));
    Brotli4jLoader.ensureAvailability();
  }

  @Override
  public CompressionOutputStream createOutputStream(OutputStream out) {
    Encoder.Parameters parameters = Encoder.Parameters.create(getConf().getInt(QUALITY, DEFAULT_QUALITY));
    return new Compressed(out, parameters);
  }

  @Override
  public CompressionOutputStream createOutputStream(OutputStream out, Compressor unused) {
    return createOutputStream(out);
  }

  @Override
  public CompressionInputStream createInputStream(InputStream in) throws IOException {
    return new Plain(in);
  }

  @Override
  public CompressionInputStream createInputStream(InputStream in, Decompressor unused) throws IOException {
    return createInputStream(in);
  }

  @Override
  public Class<? extends Compressor> getCompressorType() {
    return null;
  }

  @Override
  public Compressor createCompressor() {
    return null;
  }

  @Override
  public Class<? extends Decompressor> getDecompressorType() {
    return null;
  }

  @Override
  public Decompressor createDecompressor() {
    return null;
  }

  @Override
  public String getDefaultExtension() {
    return ".br";
  }

  private static final class Compressed extends CompressionOutputStream {
    private final ByteArrayOutputStream plain = new ByteArrayOutputStream();
    private final Encoder.Parameters parameters;
    private boolean finished;

    Compressed(OutputStream out, Encoder.Parameters parameters) {
      super(out);
      this.parameters = parameters;
    }

    @Override
    public void write(int one) {
      plain.write(one);
    }

    @Override
    public void write(byte[] bytes, int from, int count) {
      plain.write(bytes, from, count);
    }

    @Override
    public void finish() throws IOException {
      if (!finished) {
        finished = true;
        out.write(Encoder.compress(plain.toByteArray(), parameters));
      }
    }

    @Override
    public void resetState() {
      plain.reset();
      finished = false;
    }
  }

  private static final class Plain extends CompressionInputStream {
    private InputStream plain;

    Plain(InputStream in) throws IOException {
      super(in);
      plain = new BrotliInputStream(in);
    }

    @Override
    public int read() throws IOException {
      return plain.read();
    }

    @Override
    public int read(byte[] bytes, int from, int count) throws IOException {
      return plain.read(bytes, from, count);
    }

    @Override
    public void resetState() throws IOException {
      plain = new BrotliInputStream(in);
    }

    @Override
    public void close() throws IOException {
      plain.close();
    }
  }
}
